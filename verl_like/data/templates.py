"""Convert a row's prompt to the text that a model reads: the tokenizer, its chat template and the user's own
template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.template_contents import drops_strings, in_parts
from verl_like.remote import is_remote, unreadable_kind
from verl_like.remote_models import local_path

Chat = list[dict[str, Any]]

# Exceptions of a template that computes with values of an unexpected type, or exceeds the sandbox's limits.
_OF_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_PICTURE_MARK = "\ufdd0"  # a code point that Unicode gives to no character
# Variables that transformers itself passes to a chat template.
_GIVEN_TO_TEMPLATES = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"}


def load_tokenizer(path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer in a folder or on the hub.

    Raises:
        ValueError: if there is none; the message names the locations searched.
    """
    if not path:
        raise ValueError(
            "model.path is empty; expected a folder or hub name of a Hugging Face model. Set model.path=... (or "
            "model.tokenizer_path=...)."
        )
    url, path = path, _copied(path)
    folder = Path(path).expanduser()
    # A hub name is "name" or "owner/name"; anything else can only be a folder, and the hub's own message would mislead.
    if not folder.exists() and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise ValueError(
            f"model path {path} does not exist (looked from {Path.cwd()}). Set model.path (or model.tokenizer_path) "
            f"to an existing "
            f"folder or a hub name such as Qwen/Qwen3-0.6B."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder) if folder.exists() else path, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError) as error:
        kind = "folder" if folder.exists() else "hub name"
        raise ValueError(
            f"no tokenizer could be loaded from the {kind} {path}: {error} "
            f"Set model.tokenizer_path to a folder with tokenizer.json or tokenizer_config.json, or to a hub name "
            f"that can be reached."
        ) from error
    if url != path:  # scorers on other nodes have their own copies
        tokenizer.name_or_path = url
    assert isinstance(tokenizer, PreTrainedTokenizerBase), f"{path} gave a {type(tokenizer).__name__}"
    if len(tokenizer) < 2:  # transformers 5 creates an empty one from only a config.json
        raise ValueError(
            f"no tokenizer could be loaded from {path}: it holds a config.json, but no vocabulary. "
            f"Set model.tokenizer_path to a folder with tokenizer.json or tokenizer_config.json, or to a hub name."
        )
    return tokenizer


def _copied(path: str) -> str:
    """Return the local folder for a URL; a folder or a hub name is returned unchanged."""
    if not is_remote(path):
        return path
    if problem := unreadable_kind("the tokenizer's path", path):
        raise ValueError(problem)
    try:
        return local_path(path)
    except Exception as error:  # any exception of a store's library
        raise ValueError(
            f"no tokenizer could be copied from {path} ({type(error).__name__}: {error}). Correct model.path (or "
            f"model.tokenizer_path), or check the store's credentials and address."
        ) from error


class Renderer:
    """Renders prompts to text, as configured in the ``data`` section.

    Args:
        data: ``apply_chat_template``, ``chat_template_kwargs`` and ``format_prompt`` are read.
        tokenizer: its chat template is used if ``apply_chat_template`` is true.

    Raises:
        ValueError: for an invalid template, before any row is read.
    """

    def __init__(self, data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        self._data = data
        self._tokenizer = tokenizer
        self._format = user_template("data.format_prompt", data.format_prompt) if data.format_prompt else None
        self._needs_parts = False
        if data.apply_chat_template:
            self._check_chat_template()
            self._needs_parts = drops_strings(tokenizer.chat_template, self.rendered)
        elif data.chat_template_kwargs:
            raise ValueError(
                f"data.chat_template_kwargs is {data.chat_template_kwargs}, but data.apply_chat_template is false, "
                f"so no template reads them. Set data.apply_chat_template=true, or remove data.chat_template_kwargs."
            )

    @property
    def adds_special_tokens(self) -> bool:
        """Whether tokenising the text must add special tokens; a chat template has already written them."""
        return not self._data.apply_chat_template

    def text(self, prompt: Any, *, wrap: Callable[[str], str] | None = None, has_pictures: bool = False) -> str:
        """Return the text of one prompt: a chat list of {role, content} or a plain string.

        Args:
            wrap: applied to the user's text, after ``data.format_prompt``.
            has_pictures: whether contents may be lists of parts: texts, and ``{type: image}`` for pictures.

        Raises:
            ValueError: for a prompt of another form; the caller adds the row's location.
        """
        if self._data.apply_chat_template:
            chat = self.chat(prompt, has_pictures=has_pictures)
            return self.rendered(
                chat if wrap is None else _wrapped(chat, wrap, "data.teacher_prompt", "algorithm.distill_teacher=ref")
            )
        if not isinstance(prompt, str):
            raise ValueError(
                f"data.apply_chat_template is false, which requires plain strings, but the prompt is a "
                f"{type(prompt).__name__}. "
                f"Set data.apply_chat_template=true, or name a column of strings with data.prompt_key."
            )
        text = self._formatted(prompt)
        return text if wrap is None else wrap(text)

    def chat(self, prompt: Any, *, has_pictures: bool = False) -> Chat:
        """Return a prompt as the chat that the template renders; a string becomes a message of the user.

        Args:
            has_pictures: as for :meth:`text`.

        Raises:
            ValueError: for a prompt of another form.
        """
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        return self._formatted_chat(_checked_chat(prompt, has_pictures=has_pictures))

    def rendered(
        self,
        chat: Chat,
        *,
        tools: Sequence[dict[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        continues: bool = True,
    ) -> str:
        """Return the text that the chat template writes.

        Args:
            tools: schemas of functions.
            variables: of the template, in addition to ``data.chat_template_kwargs``, which they override.
            continues: whether the text ends with the template's generation prompt.

        Raises:
            ValueError: the template refuses the messages.
        """
        try:
            text = self._tokenizer.apply_chat_template(
                in_parts(chat) if self._needs_parts else chat,
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=continues,
                **{**self._data.chat_template_kwargs, **(variables or {})},
            )
        except (jinja2.TemplateError, TypeError, LookupError) as error:
            roles = [message["role"] for message in chat]
            raise ValueError(
                f"the tokenizer's chat template refused a prompt with roles {roles}: {error}. "
                f"Change the prompt, or set data.apply_chat_template=false."
            ) from error
        assert isinstance(text, str), f"apply_chat_template gave a {type(text).__name__}"
        return text

    def _formatted_chat(self, chat: Chat) -> Chat:
        if self._format is None:
            return chat
        return _wrapped(chat, self._formatted, "data.format_prompt", "data.format_prompt=''")

    def _formatted(self, content: str) -> str:
        return content if self._format is None else self._format.filled(content=content)

    def _check_chat_template(self) -> None:
        template = self._tokenizer.chat_template
        if not template:
            raise ValueError(
                f"data.apply_chat_template is true, but the tokenizer {self._tokenizer.name_or_path or ''} has no "
                f"chat template. "
                f"Set data.apply_chat_template=false to use plain strings, use a tokenizer that has one "
                f"(model.tokenizer_path), or add a chat_template.jinja to the tokenizer's folder."
            )
        # Jinja would silently ignore a misspelt variable.
        if isinstance(template, str) and self._data.chat_template_kwargs:
            reads = jinja2.meta.find_undeclared_variables(_environment().parse(template))
            unknown = sorted(set(self._data.chat_template_kwargs) - reads)
            if unknown:
                known = sorted(reads - _GIVEN_TO_TEMPLATES)
                raise ValueError(
                    f"data.chat_template_kwargs has {unknown}, which the tokenizer's chat template does not read; it "
                    f"reads {known}. "
                    f"Correct the name, or remove it."
                )


def _environment() -> jinja2.Environment:
    # transformers compiles chat templates with this extension; without it {% break %} is a syntax error. A template
    # comes with a recipe, possibly from another author, so it may read values but has no access to their internals.
    return jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )


class _GenerationTag(jinja2.ext.Extension):
    """Parses ``{% generation %}``, with which chat templates mark the assistant's text, as its body."""

    tags = {"generation"}  # noqa: RUF012 (an instance attribute in the base class's annotations)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _wrapped(chat: Chat, wrap: Callable[[str], str], option: str, default: str) -> Chat:
    """Return the chat with ``wrap``, which ``option`` configures, applied to the last user message."""
    last_user = max((i for i, message in enumerate(chat) if message["role"] == "user"), default=None)
    if last_user is None:
        raise ValueError(f"{option} wraps the last user message, but the prompt has none. Add one, or set {default}.")
    content = chat[last_user]["content"]
    wrapped = wrap(content) if isinstance(content, str) else _wrapped_parts(content, wrap, option)
    message = {**chat[last_user], "content": wrapped}
    return [*chat[:last_user], message, *chat[last_user + 1 :]]


def _wrapped_parts(parts: list[dict[str, Any]], wrap: Callable[[str], str], option: str) -> list[dict[str, Any]]:
    """Return the parts with ``wrap`` applied to their whole text, in which a mark stands for each picture."""
    pictures = [part for part in parts if part["type"] != "text"]
    text = "".join(part["text"] if part["type"] == "text" else _PICTURE_MARK for part in parts)
    texts = wrap(text).split(_PICTURE_MARK)
    if text.count(_PICTURE_MARK) != len(pictures) or len(texts) != len(pictures) + 1:
        raise ValueError(
            f"{option} gives a text with {len(texts) - 1} positions of pictures, but the message has {len(pictures)} "
            f"pictures. Write {{{{ content }}}} once and whole; remove U+{ord(_PICTURE_MARK):X} from the row's text."
        )
    given: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for picture, after in zip(pictures, texts[1:], strict=True):
        given += [picture, {"type": "text", "text": after}]
    return [part for part in given if part != {"type": "text", "text": ""}]


@dataclass(frozen=True, slots=True)
class UserTemplate:
    """The template of a user's text, and the option that gives it."""

    option: str
    variables: tuple[str, ...]
    template: jinja2.Template

    def filled(self, **values: str) -> str:
        """Return the text with these values of the variables.

        Raises:
            ValueError: the template cannot be filled with them.
        """
        try:
            return self.template.render(**values)
        except (jinja2.TemplateError, *_OF_VALUES) as error:
            names = _shown(self.variables)
            raise ValueError(
                f"{self.option} cannot be filled: {error}. Use {names} and Jinja's filters and tests."
            ) from error


def user_template(option: str, text: str, variables: tuple[str, ...] = ("content",)) -> UserTemplate:
    """Return the template of an option: its text, or the path of a .jinja file.

    Args:
        variables: all that the template reads.

    Raises:
        ValueError: for a missing file, a syntax error or other variables.
    """
    source = f"{option} {text!r}"
    if text.endswith(".jinja"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise ValueError(
                f"{option} names the file {text}, which does not exist (looked from {Path.cwd()}). "
                f"Correct the path, or give the template's text."
            )
        text = path.read_text(encoding="utf-8")
    environment = _environment()
    try:
        found = jinja2.meta.find_undeclared_variables(environment.parse(text))
        template = environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(
            f"{source} is not a Jinja template: line {error.lineno}: {error.message}. Correct it; the user's text is "
            f"{{{{ content }}}}."
        ) from error
    if found != set(variables):
        where = "the user's text goes" if len(variables) == 1 else "these texts go"
        raise ValueError(
            f"{source} reads the variables {sorted(found)}; expected exactly {list(variables)}. "
            f"Put {_shown(variables)} where {where}."
        )
    return UserTemplate(option, variables, template)


def _shown(variables: tuple[str, ...]) -> str:
    return " and ".join(f"{{{{ {name} }}}}" for name in variables)


def _checked_chat(prompt: Any, *, has_pictures: bool) -> Chat:
    if not isinstance(prompt, list) or not prompt:
        found = f"{type(prompt).__name__} {str(prompt)[:80]!r}"
        raise ValueError(f"the prompt is {found}; expected a string or a non-empty list of {{role, content}}.")
    for message in prompt:
        if (
            not isinstance(message, dict)
            or not isinstance(message.get("role"), str)
            or not isinstance(message.get("content"), (str, list) if has_pictures else str)
        ):
            is_list = isinstance(message, dict) and isinstance(message.get("content"), list)
            reason = " Lists of parts are read only of rows with pictures, by models of pictures." if is_list else ""
            raise ValueError(
                f"the prompt has the message {str(message)[:80]!r}; expected a dict with the strings role and content."
                f"{reason}"
            )
    return prompt
