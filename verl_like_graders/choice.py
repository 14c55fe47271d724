"""Reward for multiple-choice questions: 1 if the response chooses the right letter."""

from __future__ import annotations

import re
from typing import Any

from verl_like_graders.guard import Grade, unreadable_is_wrong

# Repetitions are bounded, so that matching is linear in the text's length.
_BEFORE = r"(?:[\s*_\"'`(\[{$:]|\\[(\[]|\\(?:text|textbf|mathrm|mathbf)\s?\{){0,20}"
_OPTION = r"(?:(?i:the\s+)?(?i:option|choice|letter|answer)\s+)?"
# After a letter that might be a word (A, I) or a variable (b): nothing, a sign, or a reason.
_ENDS = (
    r"(?=\s*$|\s*\n|[)\]}*_\"`$,;:!?]|\s*</|\.(?![a-z])"
    r"|\s+(?:[-–—(]|(?i:because|since|as|for|which|with|due|given|by)\b))"
)
_NO_FORMULA = r"(?!<(?!/)|[\w'’(+=/^>]|\s*(?:[+=^>]|<(?!/))|-\w|\s*\\(?:cdot|times|frac|sqrt|in)\b)"
_LETTER = rf"(?P<letter>(?<![\w'’])(?:[B-HJ-Z]{_NO_FORMULA}|[AIa-z]{_NO_FORMULA}{_ENDS}))"
# "not A but": the answer follows it.
_REJECTED = r"(?:(?i:\s*\bnot)[\s*(\"']{1,5}[A-Za-z][)*\"',]{0,5}\s+(?i:but)(?:\s+(?i:rather|instead))?)?"
# Chinese, where words touch the letters.
_HAN = r"\u3400-\u9fff"
_HAN_BEFORE = r"[\s*_\"'`“‘(（\[【{$:：]{0,20}(?:选项|選項)?[\s*_\"'`“‘(（\[【{$:：]{0,20}"
_HAN_LETTER = r"(?P<letter>(?<![A-Za-z0-9])[A-Z])(?![A-Za-z0-9'’+=^/-]|\s*[+=^])"
_ADVERB = r"(?:,?\s+(?i:therefore|thus|clearly|definitely|most\s+likely|likely|probably|indeed|hence),?)?"
_STATEMENTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # The answer (to this question) is B; Answer: (b); the correct option would be **B**.
        rf"\b(?i:answer|(?:correct|right|best)\s+(?:option|choice|letter|one|statement))(?:\s+(?i:to|for|of|choice|option|letter)\b[^.\n:]{{0,60}}?)?"
        rf"[*_]{{0,3}}\s{{0,5}}(?:(?i:is|would\s+be|should\s+be|must\s+be)\b|[:=]){_ADVERB}{_REJECTED}{_BEFORE}{_OPTION}{_BEFORE}{_LETTER}",
        rf"(?:\\f?boxed\s{{0,5}}\{{|<answer>){_BEFORE}{_OPTION}{_BEFORE}{_LETTER}",
        rf"\b(?i:choose|chose|pick|select|go\s+with|going\s+with)\s{_BEFORE}{_OPTION}{_BEFORE}{_LETTER}",
        # 答案是B; 正确选项为(B); 答案不是A，而是B.
        rf"(?:答案|正确选项|正确的选项|正确的)(?:应该|应当|应|就|便|选项)?(?:不是[^是\n]{{1,12}}而)?(?:是|为|為|选择?|選擇?|[:：=】])+{_HAN_BEFORE}{_HAN_LETTER}",
        # 故选B; 我选择B.
        rf"(?:选择?|選擇?)(?![项項]){_HAN_BEFORE}{_HAN_LETTER}",
        # 选项B是正确的; B项正确.
        r"(?:^|[\s。，,;；：:]|选项|選項)[(（*]{0,3}(?P<letter>[A-Z])[)）*]{0,3}\s*(?:选项|選項|项)?(?:是|为)?(?:正确|最佳|对的)",
        # Option B is correct; (B) is the right answer.
        r"(?:^|[.!?:,;]\s|\b(?i:option|choice|answer|so|thus|therefore|hence|that)\s)[\s*(\"]{0,5}(?P<letter>[A-Z])[)*\"]{0,5}\s+"
        r"(?i:is|must\s+be|would\s+be)\s+(?i:the\s+)?(?i:only\s+)?(?i:correct|right|best|answer)\b",
    )
)
# The last line is a letter, or ends in one that the text points at.
_LAST_LINE = re.compile(
    r"[\s*_\"'`(\[{$]{0,10}(?P<alone>[A-Za-z])[)\]}*_\"'`$.:!\s]{0,10}"
    r"|[\s*_\"'`(\[{$#>-]{0,10}(?i:(?:so|thus|hence|therefore)?,?\s{0,3}(?:the\s+)?(?:final\s+)?(?:option|choice|letter|answer))\s+"
    r"[*_\"'(\[$]{0,5}(?P<named>[A-Z])[)\]}*_\"'`$.:!\s]{0,10}"
    r"|.*(?:\b(?i:is|be|therefore|thus|so|hence)|:|=>|->|→)\s+[\"'(*$]{0,5}(?P<pointed>[A-Z])[\"')*$.!]{0,6}|.*\((?P<closing>[A-Z])\)[.*\s]{0,6}"
)
_ONE_LINE = re.compile(r"\s*\(?(?P<letter>[A-Z])[).:]\s.*")
_BOLD = re.compile(r"\*\*\(?([A-Z])\)?[.:]?\*\*")
# Words directly before a letter, or before the text that points at it, which negate the choice.
_DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor)|n[’']t)\s+(?:be\s+|is\s+|pick\s+|choose\s+|select\s+|go\s+with\s+)?(?:the\s+)?"
    r"(?:option\s+|choice\s+|letter\s+|answer\s+(?:is\s+)?)?[(*\"'$]{0,5}\Z|\b(?:wrong|incorrect|false)\s+(?:answer|option|choice)\s+is\s+"
    r"[(*\"'$]{0,5}\Z",
    re.IGNORECASE,
)
# Words that negate a whole statement or make it a supposition: it is not the case that, I doubt that, if; 不, 排除.
_DENIED_STATEMENT = re.compile(
    r"(?:(?:\b(?:not|never|nobody|(?<!no )(?<!not )(?<!n.t )doubt|some|others|false|wrong|incorrect|untrue"
    r"|unlikely|impossible|deny|denies|if|unless"
    r"|suppose|supposing|assume|assuming|whether)|n[’']t)\b(?:\s+(?:the\s+case|true|right|correct|clear|certain|sure|think|believe|say|said|claim"
    r"|would|could|can|agree|be|to|me|we|one)){0,4}(?:\s+that)?\s+(?:the\s+)?"
    r"|[不别非未勿](?:能|应该?|会|可能|该|要|可以)?|错误的?|错的|没有[^。，,;；\n]{0,12}|排除|如果|假如|若|假设|是否)[*_\"'(]{0,3}\Z",
    re.IGNORECASE,
)
_IN_BOX = re.compile(r"\\f?boxed\s{0,5}\{(?P<held>(?:[^{}]|\{[^{}]{0,100}\}){0,200})\}")
_BOX_BEFORE = re.compile(r"\\f?boxed\s{0,5}\{[^{}]{1,20}\}[\s$]{0,5}(?:,|/|&|and|or)[\s$]{0,5}\Z")
_HEDGE = re.compile(
    rf"[)\]}}*_\"'`$.\s]{{0,10}}(?:(?i:,?\s*\b(?:or|and)\b)|[或和与、及]|还是|[/&]|\\text\s?\{{\s?(?:or|and)\s?\}}|,(?=[\s(*\"]{{0,5}}[A-Z][)*\"]{{0,5}}(?:[,.;]|\s*$|\s*(?:or|and)\b)))"
    rf"\s?(?:(?i:possibly|maybe|perhaps|also|both)\s)?{_BEFORE}{_OPTION}{_BEFORE}(?:[B-HJ-Z](?![\w'’])|[AI](?=\s*$|[)\]}}*_.,;$]))"
)


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], *, letters: str = "ABCD"
) -> Grade:
    r"""Score 1 if the response chooses the right letter.

    A letter is chosen by a statement ("The answer is (B)", "Answer: b", "\boxed{B}", "I choose B", "option B is
    correct") or by the last line, if it is that letter or points at it ("so it must be **B**."). The last choice
    counts. Without either, a response chooses B if its only bold letter is B, or if its only line begins with "B)" or
    "B.". The words "A" and "I" are not letters, and "A or B" is not a choice.

    Args:
        ground_truth: the letter, with or without brackets.
        letters: the letters of the options; a response that chooses another is wrong.

    Returns:
        ``score`` and ``acc`` (1 or 0), and ``pred``: the chosen letter, "" if there is none.

    Raises:
        ValueError: the ground truth is not one of the letters, or ``letters`` are not distinct capital letters.
    """
    return _grade(solution_str, _ground_truth(ground_truth, letters))


def read_truth(ground_truth: Any, *, letters: str = "ABCD") -> str:
    """Check the ground truth; return "", because a letter is compared without conversion.

    Raises:
        ValueError: as in :func:`compute_score`.
    """
    _ground_truth(ground_truth, letters)
    return ""


def _ground_truth(ground_truth: Any, letters: str) -> str:
    """Return the ground truth as a capital letter."""
    if len(letters) < 2 or len(set(letters)) < len(letters) or not re.fullmatch("[A-Z]*", letters):
        raise ValueError(
            f"letters is {letters!r}; expected two or more distinct capital letters, such as ABCDE. Set "
            "reward.function_kwargs.letters."
        )
    match = re.fullmatch(r"\s*\(?([A-Za-z])[).]?\s*", ground_truth) if isinstance(ground_truth, str) else None
    if match is None or match[1].upper() not in letters:
        raise ValueError(
            f"ground_truth is {ground_truth!r:.80}; expected one of the letters {letters}. Store the letter, not the "
            "option's text or number, or set reward.function_kwargs.letters."
        )
    return match[1].upper()


@unreadable_is_wrong
def _grade(response: str, ground_truth: str) -> Grade:
    chosen = chosen_letter(response)
    is_right = float(chosen == ground_truth)
    return {"score": is_right, "acc": is_right, "pred": chosen}


def chosen_letter(text: str) -> str:
    """Return the letter that the text chooses, as a capital, or "" if it chooses none or several."""
    text = text.rstrip()
    found = [match for pattern in _STATEMENTS for match in pattern.finditer(text)]
    statement = max(found, key=lambda match: match.start("letter"), default=None)
    line_start = text.rfind("\n") + 1
    if statement is None or statement.start("letter") < line_start:
        last = _LAST_LINE.fullmatch(text, line_start) if len(text) - line_start < 1000 else None
        if last is not None:
            named = str(last.lastgroup)
            return "" if _is_denied(text, last.start(named)) else last[named].upper()
    if statement is not None:
        is_open = _HEDGE.match(text, statement.end("letter")) or _lists_letters(statement, text)
        is_denied = _is_denied(text, statement.start("letter")) or _is_denied_whole(text, statement.start())
        return "" if is_open or is_denied else statement["letter"].upper()
    bold = {match[1] for match in _BOLD.finditer(text)}
    if len(bold) == 1:
        return bold.pop()
    one_line = _ONE_LINE.fullmatch(text)
    return one_line["letter"] if one_line else ""


def _is_denied(text: str, letter_start: int) -> bool:
    return _DENIED.search(text[max(0, letter_start - 80) : letter_start]) is not None


def _is_denied_whole(text: str, start: int) -> bool:
    return _DENIED_STATEMENT.search(text[max(0, start - 80) : start]) is not None


def _lists_letters(statement: re.Match[str], text: str) -> bool:
    """Return whether the statement's box holds several single letters, as in A, B, or continues a box before it."""
    box = _IN_BOX.match(text, statement.start())
    if box is None:
        return False
    if _BOX_BEFORE.search(text[max(0, box.start() - 60) : box.start()]):
        return True
    held = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s?", "", box["held"])
    return re.fullmatch(r"[\s({]*[A-Z][)}\s]*(?:[,;/&\s][\s({]*[A-Z][)}\s]*)+", held) is not None
