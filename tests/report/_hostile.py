"""Texts of samples that would act on a page that trusted them."""

LINE_OF_1_MB = "x" * 1_000_000
# Each is shown as inert text. The ones with markup would set window.wasRun.
HOSTILE = (
    "</script><script>window.wasRun = 1</script>",
    "<img src=x onerror='window.wasRun = 2'>",
    "<svg/onload=window.wasRun=3>",
    '<a href="javascript:window.wasRun=4" autofocus onfocus="window.wasRun=5">click</a>',
    "<style>* { display: none !important }</style><base href='https://example.org/'>",
    "<!-- <script> {{scripts}} {{head}} ${window.wasRun = 6}",
    "\x1b[31mred\x1b[0m \x1b]8;;https://example.org\x07link\x1b]8;;\x07 \x00\x07\x08\x7f\x9b2J",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 1 + 2 = 3",
    "abc\u202egnp.exe\u202c \u2066hidden\u2069 zero\u200bwidth \ufeff",
    "half \ud83d of a pair \ude00 and a whole one \U0001f600",
    LINE_OF_1_MB,
    "a\u0301" + "\u0300\u0301\u0302" * 400 + " many marks",
    "\n" * 500 + "after many lines",
    "constructor __proto__ toString \\u003c &lt;b&gt; &amp; %3Cscript%3E",
)
