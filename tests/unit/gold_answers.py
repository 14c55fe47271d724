r"""Gold answers in the forms of MATH, AIME and the olympiads, and the ways to write each that change no meaning; the
answers were made up for this project.
"""

from __future__ import annotations

import re

MATH_LIKE = tuple(
    r"""
0
1
-1
2
7
12
-17
34
56
73
91
100
108
144
204
-256
371
512
625
729
891
999
1024
-1296
1729
2048
3600
5040
9801
12321
-40320
65536
100800
362880
1048576
6227020800
12345678987654321
-2000001
1,728
10,000
250,000
1,048,576
0.5
.75
-0.125
3.14
2.718
0.001
12.6
1.05
99.99
-273.15
1234.5
0.\overline{3}
0.\overline{142857}
0.1\overline{6}
0.5\overline{27}
2.\overline{09}
\frac{1}{2}
\frac{3}{4}
-\frac{5}{7}
\frac{-2}{9}
\frac{17}{3}
\frac{22}{105}
\frac{1}{1024}
\frac{1023}{1024}
\frac{2017}{2018}
\frac{1}{10001}
\frac12
\frac58
\frac{1}2
-\frac{11}{12}
\frac{125}{216}
\frac{49}{132}
\dfrac{7}{15}
\dfrac{1}{6}
\tfrac{9}{16}
3/8
-7/2
15/28
2\frac{1}{3}
5\frac{3}{4}
-1\frac{1}{2}
12\frac{2}{5}
\sqrt{2}
\sqrt3
\sqrt{13}
2\sqrt{3}
5\sqrt{6}
-4\sqrt{5}
10\sqrt{110}
\sqrt[3]{2}
3\sqrt[3]{4}
\sqrt[4]{27}
\sqrt[5]{16}
\frac{\sqrt{2}}{2}
\frac{\sqrt{3}}{3}
-\frac{\sqrt{3}}{2}
\frac{3\sqrt{5}}{7}
\frac{1}{\sqrt{2}}
\frac{2}{3\sqrt{3}}
\frac{5\sqrt{7}}{14}
1+\sqrt{2}
3-2\sqrt{2}
-1-\sqrt{6}
\sqrt{2}+\sqrt{3}
\sqrt{6}-\sqrt{2}
\frac{1+\sqrt{5}}{2}
\frac{-3+\sqrt{17}}{4}
\frac{7-\sqrt{13}}{6}
\frac{\sqrt{6}+\sqrt{2}}{4}
\sqrt{2+\sqrt{3}}
\sqrt{5+2\sqrt{6}}
\sqrt[3]{2+\sqrt{5}}
\sqrt{\frac{2}{3}}
\sqrt{\frac{7}{11}}
(\sqrt{2}-1)^2
\left(\frac{1}{3}\right)^{10}
\left(\frac{2}{5}\right)^4
2^{10}
3^{2021}
2^{100}
2^{2017}-1
7^{77}
10^{-6}
5^{12}
2^{-8}
2^6\cdot 3^5
2^{11}\cdot 3^2
3^4\cdot 5^2\cdot 7
2^{n}
2^{n+1}-1
2^{n-1}
3^n-2^n
n^2
n^2-n+1
n!
100!
2017!
\frac{8!}{2!}
\frac{2016!}{1008!}
(n-1)!
\binom{10}{3}
\binom{20}{10}
\binom{n}{2}
\binom{2n}{n}
\binom{n+1}{3}
\dbinom{12}{5}
\frac{\binom{5}{2}}{\binom{10}{2}}
\pi
2\pi
-\pi
36\pi
\frac{\pi}{2}
\frac{\pi}{12}
\frac{5\pi}{6}
\frac{2\pi}{3}
\frac{7\pi}{4}
-\frac{3\pi}{8}
\frac{\pi^2}{6}
\frac{\pi\sqrt{3}}{9}
4\pi-8
12+6\pi
9\pi-18
\pi+1
\frac{\pi}{4}-\frac{1}{2}
\frac{\pi-2}{4}
64-16\pi
\frac{4}{3}\pi
288\pi
\frac{500\pi}{3}
25\sqrt{3}-\frac{25\pi}{2}
\sqrt{\pi}
\sqrt{3}\pi
e
e^2
e^{-1}
\frac{1}{e}
e-1
e^{\pi}
2e^3
\frac{e^2-1}{2}
\ln 2
\ln 3-\ln 2
\frac{\ln 2}{2}
\log_2 3
\log_{10} 7
\log_3 5
2\log_2 3
\log 2
\frac{\log 3}{\log 2}
\frac{1}{\ln 10}
\log_2 n
\sin 20^\circ
\cos 36^\circ
\tan 75^\circ
\sin(90^\circ-x)
\cos(180^\circ-\alpha)
\sin\frac{\pi}{7}
\cos\frac{2\pi}{5}
\tan^2 x
\sec x
\csc\theta
\cot x
\sin x
\cos 2x
2\sin x\cos x
\sin^2\theta
\arcsin\frac{1}{3}
\arctan 2
\arccos\frac{1}{4}
\frac{1}{2}\sin 2x
30^\circ
45^\circ
60^{\circ}
135^\circ
22.5^\circ
180^{\circ}
67.5^{\circ}
50\%
12.5\%
100\%
33\frac{1}{3}\%
0.5\%
25\%
7\%
\$5
\$18.90
\$1,250
\$32{,}348
\$0.75
\$36
\$10,000
5\text{ cm}
12\text{ cm}^2
36\text{ square units}
27\text{ cubic inches}
60\text{ mph}
8\text{ hours}
3.5\text{ miles}
40\text{ minutes}
15\mbox{ cm}^2
7\text{ feet}
24\text{ in}^2
10\,\mathrm{kg}
9.8\,\mathrm{m/s}
180\text{ degrees}
6\sqrt{3}\text{ cm}
25\pi\text{ square inches}
2\text{ gallons}
55\text{ mph}
1200\text{ meters}
75\text{ cents}
14\text{ students}
5\text{ units}
i
-i
2i
3+4i
1-i
-2+5i
6-5i
\frac{1}{2}+\frac{\sqrt{3}}{2}i
\frac{3}{5}-\frac{4}{5}i
-1+i\sqrt{3}
\sqrt{2}i
1+2\mathrm{i}
e^{i\pi/3}
2e^{\frac{\pi i}{4}}
\pm i
-3\pm 2i
1011_2
110_2
2102_3
4321_5
77_8
2A_{16}
1000_{2}
BEE_{16}
204_5
1210_{3}
x
x+1
3x-7
-x+2
2x+3y
x^2
x^2-1
x^2+2x+1
x^2-5x+6
-x^2+4x-3
2x^2+3x-5
x^3-3x+2
x^3+x^2+x+1
x^4-10x^2+1
x^5-x
x^{10}+1
4x^2-12x+9
3x^3-2x^2+x-7
x^2y+xy^2
a^2+b^2
a^2-2ab+b^2
ab+bc+ca
a+b+c
a^3+b^3+c^3-3abc
p^2q
xyz
t^2+4t
6r^2s
y^4-2y^2+7
(x+1)(x-1)
(x-2)(x+5)
(x+2)^2
2(x-3)^2
2{(x-3)}^2
(x^2+1)(x-1)
3(x+1)^2-4
(a+b)(b+c)(c+a)
(x-y)(x^2+xy+y^2)
x(x+3)
5(2x-1)(x+4)
(x^2+2x+2)(x^2-2x+2)
-(x-5)(x+5)
7(x-2)^2+4
\frac{x}{2}
\frac{x+1}{x-1}
\frac{2x}{x^2+1}
\frac{1}{x}
\frac{1}{x+2}
\frac{x^2-4}{3}
\frac{a}{b}
\frac{a+b}{2}
\frac{ab}{a+b}
\frac{n(n+1)}{2}
\frac{n(n+1)(2n+1)}{6}
\frac{n}{n+1}
\frac{3^n-1}{2}
\frac{1}{n!}
\frac{k^2}{4}
\frac{x-3}{2}
\frac{7-y}{5}
-\frac{b}{2a}
\frac{-b+\sqrt{b^2-4ac}}{2a}
\frac{V}{\ell h}
\frac{A}{\pi r}
\frac{2A}{h}
\frac{mv^2}{r}
\frac{GMm}{r^2}
\frac{Rr}{R+r}
\pi r^2
2\pi r
\frac{4}{3}\pi r^3
\pi(R^2-r^2)
\frac{1}{2}bh
R-r
R+r
M+m
\frac{R}{r}
\sqrt{a^2+b^2}
\sqrt{x+1}
\sqrt{R^2-r^2}
x\sqrt{x}
\sqrt[3]{x}
2\sqrt{xy}
x^{-2}
x^{1/3}
e^x
e^{-x^2}
xe^x
\ln x
\ln(x+1)
x\ln x-x
|x|
|x|^2
|x-3|
|a|+|b|
\left|x\right|
\lfloor x\rfloor
\lceil x\rceil
\left\lfloor\frac{n}{2}\right\rfloor
\lfloor\sqrt{n}\rfloor
2[x+1]
\Delta
\Delta x
\alpha
\theta
\lambda
\alpha+\beta
\frac{\alpha}{2}
180^\circ-2\alpha
\omega^2
\mu\sigma
x_1
a_n
a_{n+1}
x_1+x_2
S_n
a_1+a_2+a_3
F_{n+2}-1
f(x)
f(2)
g(x+1)
f^{-1}(x)
f(g(x))
P(1)
f(x)=2x+1
f(x)=x^2-3
f(n)=n
f(x)=0
g(x)=\frac{1}{x}
f(x)=cx
P(x)=x^3-x
f^{-1}(x)=\frac{x-1}{2}
h(t)=-16t^2+64t
f(3)=10
f(x)=x+\frac{1}{x}
x=5
x=-\frac{3}{2}
y=7
n=2017
k=\pm 4
a=\sqrt{2}
r=\frac{2}{3}
\theta=\frac{\pi}{4}
p=3q
t=0
y=2x+3
y=-\frac{1}{2}x+4
y=x^2
y=3
x=-2
2x+3y=6
x-2y+7=0
x^2+y^2=25
(x-1)^2+(y+2)^2=9
\frac{x^2}{9}+\frac{y^2}{4}=1
y^2=4x
xy=1
3x+4y-12=0
a+b=c
a^2+b^2=c^2
x+y+z=0
x<1
x>-3
x\le 5
x\ge\frac{1}{2}
y<0
n\geq 4
k\leq -2
-2<x<3
0\le x<1
1\leq x\leq 10
-\frac{1}{2}<k\le 2
x\ne 0
x\ne \pm 5
x\neq 3
x \ne -1
f(2)<f(1)<f(4)
f(2) < f(1) < f(4)
a<b<c
c<a<b
g(0)>g(1)>g(2)
a\le b\le c
x+y<3
2x-y\ge 4
x<-1\text{ or }x>1
x\le 0\text{ or }x\ge 4
(1,2)
(0,0)
(-3,4)
(2,-5)
\left(\frac{1}{2},3\right)
\left(-\frac{2}{3},\frac{5}{4}\right)
(\sqrt{2},1)
(3,\pi)
\left(2,\frac{\pi}{3}\right)
\left(6,\frac{5\pi}{4}\right)
(1,2,3)
(-1,0,4)
(2,3,5,7)
(a,b)
(x,-y)
(0,\frac{7}{2})
(10,-12,8)
(1,1,1,1)
\left(3\sqrt{2},\frac{7\pi}{4}\right)
(x,y)=(3,4)
(a,b,c)=(1,2,3)
(2n,n)
(1,2),(3,4)
(0,1),(1,0)
(-1,-1),(2,2),(5,5)
(3,4)\text{ and }(4,3)
[1,2]
[0,\infty)
(1,2]
[-3,5)
(-\infty,3)
(-\infty,0]
(2,\infty)
(-\infty,\infty)
\left[-\frac{1}{2},\frac{1}{2}\right]
\left(-\infty,\frac{7}{3}\right]
[-2,2]
[1,\sqrt{3})
(-\sqrt{5},\sqrt{5})
[0,\pi]
\left[0,\frac{\pi}{2}\right)
(-\infty,1)\cup(2,\infty)
(-\infty,-1]\cup[1,\infty)
(0,1)\cup(1,2)
(-\infty,0)\cup(0,\infty)
[-5,-2]\cup[2,5]
(-2,0)\cup(3,7]
x\in[0,1]
x\in(-\infty,-2)\cup(3,\infty)
x\in[-1,1]
(-1,1)\cup\{3\}
1,2
-3,5
1,2,3
2,4,8,16
-1,0,1
\frac{1}{2},3
1+\sqrt{2},1-\sqrt{2}
0,\frac{\pi}{2},\pi
2, 3, 5
-2 \text{ and } 7
4 \text{ or } 9
x=1,x=2
1, -1, i, -i
x=-1\text{ or }x=6
\pm 1
\pm\sqrt{3}
\pm\frac{1}{2}
2\pm\sqrt{5}
\frac{-1\pm\sqrt{5}}{2}
3\pm 2\sqrt{2}
\pm 4
\{1,2,3\}
\{0\}
\{-1,1\}
\left\{\frac{1}{2},\frac{1}{3}\right\}
\{2,3,5,7,11\}
\{a,b,c\}
\{(1,2),(2,1)\}
\{1,3,5,\ldots\}
\{x\mid x>0\}
\{\sqrt{2},-\sqrt{2}\}
\emptyset
\varnothing
A\cup B
A\cap B
\mathbb{R}
\mathbb{Z}
\mathbb{N}
\mathbb{Q}
\mathbb{R}\setminus\{0\}
\infty
-\infty
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
\begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix}
\begin{pmatrix} 5 \\ -2 \end{pmatrix}
\begin{pmatrix} 1 \\ 0 \\ 3 \end{pmatrix}
\begin{pmatrix} 1/2 & 0 \\ 0 & 1/2 \end{pmatrix}
\begin{pmatrix} -3 & 7 & 1 \end{pmatrix}
\begin{bmatrix} 2 & 0 \\ 0 & 3 \end{bmatrix}
\begin{pmatrix} \frac{1}{2} \\ -\frac{3}{4} \end{pmatrix}
\begin{pmatrix} 1 & 0 & 0 \\ 0 & 1 & 0 \\ 0 & 0 & 1 \end{pmatrix}
\begin{pmatrix} \cos\theta & -\sin\theta \\ \sin\theta & \cos\theta \end{pmatrix}
\begin{pmatrix} a & b \\ c & d \end{pmatrix}
\begin{bmatrix} x \\ y \end{bmatrix}
\langle 3,-1,2\rangle
\langle 1,0\rangle
\mathbf{v}
2\mathbf{a}-\mathbf{b}
3\mathbf{i}+4\mathbf{j}
\vec{a}+\vec{b}
\overrightarrow{AB}
\frac{1}{2}(\mathbf{a}+\mathbf{b})
\|\mathbf{v}\|^2
3:4
1:2
2:3:5
5 : 7
\sqrt{2}:1
3:30
10:45
6:15\text{ p.m.}
4:30\text{ PM}
6.02\times 10^{23}
3\times 10^8
1.6\times 10^{-19}
4.5\cdot 10^{3}
2.1 \times 10^{-5}
1.5e3
\text{(A)}
\text{(B)}
\text{(C)}
\text{(D)}
\text{(E)}
(C)
\textbf{(B)}
\text{A}
\text{D}
E
B
\textbf{(A)}\ 12
\text{Monday}
\text{Tuesday}
\text{Friday}
\text{Sunday}
\text{June 20}
\text{March 3}
\text{July 4, 1776}
\text{yes}
\text{no}
\text{Yes}
\text{True}
\text{False}
\text{even}
\text{odd}
\text{neither}
\text{east}
\text{ellipse}
\text{parabola}
\text{hyperbola}
\text{two lines}
\text{circle}
\text{point}
\text{right}
\text{isosceles}
\text{equilateral triangle}
\text{Alice}
\text{Evelyn}
\text{Bob and Carol}
\text{Navin}
\text{blue}
\text{red, blue}
\text{no solution}
\text{infinitely many}
\text{undefined}
\text{does not exist}
\text{all real numbers}
\text{rhombus}
\text{irrational}
\text{A, C, E}
\text{II}
\text{I and III}
\text{Q}
north
Thursday
Carlos
tangent
AB
ABC
\angle ABC
\triangle ABC
\overline{AB}
\triangle ABC\sim\triangle DEF
AB\parallel CD
AB\perp CD
\angle A=\angle B
AB=CD
PQ^2
\angle BAC=40^\circ
\frac{AB}{CD}
n\equiv 3\pmod{7}
x\equiv 1\pmod{12}
5\pmod{8}
p\equiv 1\pmod 4
a\mid b
6k+1
4k\pm 1
p-1
2p
n\ge 3
\phi(n)
\gcd(a,b)
\sum_{k=1}^{n}k
\sum_{k=0}^{\infty}\frac{1}{k!}
\prod_{k=1}^{n}(2k-1)
\int_0^1 f(x)\,dx
\lim_{x\to 0}f(x)
\frac{dy}{dx}
\nabla f
\ell
\ell^2
\hbar
x'
f'(x)
y''
\overline{z}
\bar{x}
\hat{p}
2^{\aleph_0}
\zeta(3)
\frac{\zeta(2)}{2}
\frac{1}{2^n}
\left(1+\frac{1}{n}\right)^n
\frac{2}{3}(x-1)
\sqrt{x^2+y^2+z^2}
4-\frac{1}{2^{98}}
\frac{3}{2}-\frac{1}{2n}
2-\sqrt{2}-\frac{\pi}{4}
\frac{1}{2}+\frac{1}{\pi}
1-\frac{35}{12^2}
5^{2/3}
8\sqrt{2}+4
\cos^{-1}\frac{1}{3}
\frac{15\sqrt{15}}{2}
m+n
(p,q,r)=(2,3,5)
\frac{\sqrt[3]{100}}{10}
""".strip().splitlines()
)

_MATHS_NAMES = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}|\\[a-zA-Z]+")
_RELATION = re.compile(r"[=<>:]|\\(?:le|ge|leq|geq|ne|neq|in|equiv|pmod|mid|sim|parallel|perp|to)(?![a-zA-Z])")
_TEXT = re.compile(r"\\(?:text|mbox|textbf)\s*\{")
_COUNT = re.compile(r"(?<![\w.^{,])\d{4,}(?![\d_.,])")
_THOUSANDS_COMMA = re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))")


def rewrites(gold: str) -> dict[str, str]:
    r"""The answer in other clothes, by what was done to it; only what applies and changes no meaning.

    A rewrite is the answer itself, or a sentence that boxes it.
    """
    sides = "" if _TEXT.search(gold) or _is_word(gold) else gold
    found = {
        "itself": gold,
        "plain spaces": _spaced(sides, " "),
        "thin spaces": _spaced(sides, r"\,"),
        "thick spaces around": rf"\;{gold}\;",
        "negative space": re.sub(r"(?<!\\)\(", r"(\\!", sides),
        "dfrac": re.sub(r"\\[dt]?frac(?![a-zA-Z])", r"\\dfrac", gold),
        "tfrac": re.sub(r"\\[dt]?frac(?![a-zA-Z])", r"\\tfrac", gold),
        "left and right": _stretched(sides),
        "dollars": f"${gold}$",
        "parentheses": rf"\({gold}\)",
        "displaystyle": rf"\displaystyle {gold}",
        "full stop": f"{gold}.",
        "dollars and full stop": f"${gold}.$",
        "boxed in a sentence": rf"So the final answer is $\boxed{{{gold}}}$, as was asked.",
        "boxed in a display": rf"\[\boxed{{{gold}}}.\]",
        "braces around exponents": re.sub(r"\^([a-zA-Z\d])(?![a-zA-Z\d]*_)", r"^{\1}", gold),
        "no braces around exponents": re.sub(r"\^\{([a-zA-Z\d])\}(?=\W|$)", r"^\1", gold),
        "name": f"x={gold}" if _is_nameless_value(gold) else "",
    }
    for kind, mark in (("comma", ","), ("TeX's comma", "{,}"), ("thin space", r"\,"), ("no separator", "")):
        found[f"thousands: {kind}"] = _separated(gold, mark)
    return {kind: text for kind, text in found.items() if text and (kind == "itself" or text != gold)}


def _spaced(gold: str, space: str) -> str:
    """With spaces around signs, and behind commas but those of thousands."""
    gold = re.sub(r"\s*([+=<>]|(?<=[\w)}])-)\s*", lambda sign: f"{space}{sign[1]}{space}", gold)
    return re.sub(r",(?!\\|\s|\d{3}(?!\d)|\})", f",{space}", gold)


def _stretched(gold: str) -> str:
    if r"\left" in gold or r"\sqrt[" in gold:
        return ""
    gold = re.sub(r"(?<!\\)[(\[]|\\\{", lambda bracket: rf"\left{bracket[0]}", gold)
    return re.sub(r"(?<!\\)[)\]]|\\\}", lambda bracket: rf"\right{bracket[0]}", gold)


def _is_word(gold: str) -> bool:
    return re.fullmatch(r"[a-zA-Z]{2,}", gold) is not None


def _is_nameless_value(gold: str) -> bool:
    """Is it one value that has no letters but those of numbers, so that ``x=`` before it says no more?"""
    has_digit = re.search(r"\d|\\pi", gold) is not None
    letters = set(re.findall("[a-zA-Z]", _MATHS_NAMES.sub("", gold)))
    is_group = gold.startswith((r"\{", r"\begin", "(", "[", r"\left", r"\text")) or "," in _THOUSANDS_COMMA.sub(
        "", gold
    )
    is_named = _RELATION.search(gold) or re.search(r"\\(?:cup|alpha|beta|theta|lambda|omega|Delta|mathbf|text)", gold)
    return has_digit and letters <= {"i", "e"} and not is_group and not is_named


def _separated(gold: str, mark: str) -> str:
    """With the mark between the thousands of its whole numbers; only where a comma could be nothing else."""
    bare = _THOUSANDS_COMMA.sub("", gold)
    if re.search(r"[,()\[\]a-zA-Z_]|\\[{}]", _MATHS_NAMES.sub("", bare)) or _TEXT.match(bare):
        return ""
    return _COUNT.sub(lambda count: f"{int(count[0]):,}".replace(",", mark), bare)
