r"""More answers with a mathematician's verdict: classes in which one mistake makes many. Written for this project.

Each line of a table is ``+`` (right) or ``-`` (wrong), the response and the truth; the table has the two reasons.
"""

from __future__ import annotations

from tests.unit.grading_corpus import Pair, pairs


def table(right: str, wrong: str, lines: str, *, grader: str = "boxed") -> list[Pair]:
    rows = (f"{line} ;; {right if line.startswith('+') else wrong}" for line in lines.strip().splitlines())
    return pairs(grader, "\n".join(rows))


NAMES_WITH_SIGNS = table(
    "equal wherever both have a value",
    "equal only where the names have certain signs, sizes or parities",
    r"""
- xy ;; |xy|
- |x|+|y| ;; |x+y|
- xy=1 ;; |xy|=1
- bcde ;; |bcde|
- abcd ;; |abcd|
- abcde ;; |abcde|
- abcdef ;; |abcdef|
- |x|-|y| ;; ||x|-|y||
- \sqrt{x/y} ;; \frac{\sqrt x}{\sqrt y}
- \sqrt{xy} ;; \sqrt{x}\sqrt{y}
- \sqrt{x^2y^2} ;; xy
+ \sqrt{x^2y^2} ;; |xy|
+ \sqrt{x^2y^2} ;; |x||y|
- \log(xy) ;; \log x + \log y
- (-1)^{m+n} m! n! ;; m! n!
- m! n! ;; (-1)^{m+n} m!n!
- |x+y+z| ;; |x|+|y|+|z|
- \frac{|x|}{x}+\frac{|y|}{y} ;; \frac{x}{|x|}+\frac{|xy|}{xy}
- |f(x)| ;; f(x)
- |f(x)g(x)| ;; f(x)g(x)
- |x|y ;; x|y|
+ |x||y| ;; |xy|
+ \binom{n}{k} ;; \frac{n!}{k!(n-k)!}
+ \binom{n+1}{k} ;; \binom{n}{k}+\binom{n}{k-1}
- |x_1+x_2| ;; |x_1|+|x_2|
- |ab|+|bc| ;; ab+bc
- |\alpha\beta| ;; \alpha\beta
- \lfloor m/2\rfloor+\lfloor n/2\rfloor ;; \lfloor (m+n)/2\rfloor
""",
)


UNITS_BY_LIST = table(
    "a unit of known words; one of the same kind is converted",
    "another unit, or letters and words that may change the value",
    r"""
+ 9.8 ;; 9.8\,\mathrm{m/s^2}
+ 9.8\,\mathrm{m\,s^{-2}} ;; 9.8\,\mathrm{m/s^2}
+ 5 N ;; 5
+ 5\text{ N}\cdot\text{m} ;; 5\text{ J}
+ 5\,\mathrm{N\cdot m} ;; 5\,\mathrm{J}
+ 5\text{ N m} ;; 5
- 5\text{K} ;; 5
- \$5\text{ K} ;; 5
- $5K ;; 5
- 5K ;; 5
- 5 K ;; 5
- 5 T ;; 5
- 5N ;; 5
- 5m ;; 5
- 2mg ;; 2
- 2nm ;; 2
- 2 ;; 2nm
- 2 ;; 2mg
- 5\text{ MN} ;; 5
- 2\mathrm{AB} ;; 2
+ 1500\text{ m} ;; 1.5\text{ km}
+ 1.5\text{ km} ;; 1500\text{ m}
+ 90\text{ minutes} ;; 1.5\text{ hours}
- 90\text{ minutes} ;; 1.5
- 1500\text{ m} ;; 1.5
- 1500 ;; 1.5\text{ km}
+ 75\text{ cents} ;; \$0.75
+ \$0.75 ;; 75\text{ cents}
+ 36\text{ km/h} ;; 10\text{ m/s}
- 36\text{ km/h} ;; 36\text{ m/s}
+ 1\text{ m}^2 ;; 10000\text{ cm}^2
- 1\text{ m}^2 ;; 100\text{ cm}^2
+ 2\pi\text{ m} ;; 200\pi\text{ cm}
- 2\pi\text{ m} ;; 20\pi\text{ cm}
+ 3\text{ ft} ;; 36\text{ inches}
+ 1\text{ yard} ;; 3\text{ feet}
+ 5\text{ cups of flour} ;; 5
+ 5 boxes of apples ;; 5
+ 12 different ways ;; 12
+ 12 ways in total ;; 12
- 5 negative integers ;; 5
+ 5 positive integers ;; 5
+ \$5 per hour ;; 5
+ 5 dollars per hour ;; \$5 per hour
+ \$15 an hour ;; 15
+ 5 dollars each ;; 5
+ 5% ;; 5\%
+ 5\% per year ;; 5\%
- 5\%\text{ decrease} ;; 5\%
+ 5\ \Omega ;; 5
+ 5\,\text{k}\Omega ;; 5000\ \Omega
+ 5\,\mathrm{k\Omega} ;; 5000\,\Omega
+ 5\,\mu\text{m} ;; 5
+ 5\text{ µm} ;; 0.005\text{ mm}
+ 5\text{ micrometers} ;; 5\,\mu\mathrm{m}
+ 3\text{ kWh} ;; 3
+ 3 kWh ;; 3
+ 3kWh ;; 3
+ 13.6\text{ eV} ;; 13.6
+ 300\text{ K} ;; 300
+ 300\,\mathrm{K} ;; 300
+ 6\text{ fluid ounces} ;; 6
+ 6 square miles ;; 6
+ 6 sq ft ;; 6\text{ ft}^2
+ 6\text{ feet squared} ;; 6\text{ ft}^2
- 6\text{ cubic feet} ;; 6\text{ ft}^2
+ 60\frac{\text{miles}}{\text{hour}} ;; 60
+ 60\text{ mi}/\text{h} ;; 60\text{ mph}
+ 5 ft 3 in ;; 5 ft 3 in
- 5 ft 3 in ;; 5 ft 3 cm
- 5\text{ ft }3\text{ in} ;; 3
- 5\text{ ft }3\text{ in} ;; 5
- 3 hours 30 minutes ;; 3
- 3 hours 30 minutes ;; 30
- 5 \text{ or } 6 \text{ cm} ;; 5
- 5\text{ pm} ;; 5
- 5\text{ am} ;; 5
+ x\text{ cm} ;; x
- x\text{ cm} ;; x\text{ m}
+ 7\text{ apples} ;; 7
- 7 ;; 7\text{ million}
- 7 ;; 7\text{ dozen}
+ 5\text{ cm.} ;; 5
+ 5 cm. ;; 5
+ 12\text{ sq. units} ;; 12
+ 100\text{ kg}\cdot\text{m/s} ;; 100
+ 4.2\text{ J/(g}\cdot\text{K)} ;; 4.2
+ 180^\circ ;; \pi
+ \frac{\pi}{2} ;; 90^\circ
+ 90^\circ ;; \frac{\pi}{2}
- \frac{\pi}{3} ;; 90^\circ
+ \frac{\pi}{2}\text{ radians} ;; 90^\circ
- 2\text{ rad} ;; 2^\circ
- 2 AB ;; 2
- 5 apples and oranges ;; 5
+ 5 people ;; 5
+ 5 children ;; 5
+ 3 Meters ;; 3
+ 3 CM ;; 3
- 3 MM ;; 3
""",
)


BASES = table(
    "the same digits in the same base",
    "other digits, another base, or digits that the base has not",
    r"""
- 1011_2 ;; 1011
+ 1011 ;; 1011_2
+ 11_{10} ;; 11
- 1011_{10} ;; 1011_2
+ 1abc_{16} ;; 1ABC_{16}
- 1bac_{16} ;; 1abc_{16}
- 1BAC_{16}+1 ;; 1ABC_{16}+1
- BAC_{16} ;; ABC_{16}
+ 1010 \text{ base } 2 ;; 1010_2
+ 1010 (base 2) ;; 1010_2
+ 1010_{\text{base }2} ;; 1010_2
+ 0110_2 ;; 110_2
- 0.101_2 ;; 0.11_2
+ 0.101_2 ;; 0.101_{2}
+ -101_2 ;; -101_{2}
- 101_2 ;; -101_2
+ 1010\,1010_2 ;; 10101010_2
- 3_{10} ;; 3_4
- 29_8 ;; 29
- 420_2 ;; 420_3
- a_{12} ;; A_{12}
- 2a_{1} ;; 2a_{2}
""",
)


REAL_SETS = table(
    "the same set of numbers",
    "another set",
    r"""
+ x<1 \lor x>2 ;; (-\infty,1)\cup(2,\infty)
+ x<1 \text{ or } x>2 ;; (-\infty,1)\cup(2,\infty)
- x<1 \land x>2 ;; (-\infty,1)\cup(2,\infty)
+ x>1 \land x<3 ;; (1,3)
+ x>1 and x<3 ;; (1,3)
+ x>1 \text{ and } x<3 ;; 1<x<3
- x>1 or x<3 ;; (1,3)
+ x \ne 0 ;; (-\infty,0)\cup(0,\infty)
+ \mathbb{R}\setminus\{0\} ;; (-\infty,0)\cup(0,\infty)
+ \mathbb{R}-\{0\} ;; x\ne 0
+ x\neq 1 \text{ and } x\neq 2 ;; \mathbb{R}\setminus\{1,2\}
+ x\neq 1, x\neq 2 ;; \mathbb{R}\setminus\{1,2\}
- x\neq 1 ;; \mathbb{R}\setminus\{1,2\}
- x\neq 1 ;; y\neq 1
+ (-\infty,2)\cup(1,3) ;; (-\infty,3)
+ (-\infty,1)\cup(2,\infty)\cup(5,6) ;; (-\infty,1)\cup(2,\infty)
- (-\infty,1)\cup(1,3) ;; (-\infty,3)
+ (-\infty,1)\cup[1,3) ;; (-\infty,3)
+ (1,2)\cup\{2\} ;; (1,2]
- (1,2)\cup(2,3) ;; (1,3)
+ ]1,2[ ;; (1,2)
+ [1,2[ ;; [1,2)
+ ]-\infty,3] ;; (-\infty,3]
+ [1,2]\cup[3,4] ;; [1,2]\cup[3,4]
+ \{x \in \mathbb{R} \mid x>0\} ;; (0,\infty)
+ \{x : 1<x<2\} ;; (1,2)
+ \{x \mid x<1 \text{ or } x>2\} ;; (-\infty,1)\cup(2,\infty)
+ [a,b)\cup(c,d) ;; (c,d)\cup[a,b)
- (\sqrt{2},2) \cup (3,4) ;; (1.414,2)\cup (3,4)
+ (\sqrt{4},3) \cup (3,4) ;; (2,3)\cup (3,4)
""",
)


RATIOS = table(
    "proportional",
    "another ratio, or a time",
    r"""
+ 2:4 ;; 1:2
+ 3/4 ;; 3:4
+ \frac34 ;; 3:4
+ 3 \text{ to } 4 ;; 3:4
+ 3 to 4 ;; 3:4
- 4:3 ;; 3:4
- 3:7 ;; 3:4
+ 2:4:6 ;; 1:2:3
- 2:4:5 ;; 1:2:3
+ 3:4 ;; \frac34
- 1:10 ;; 3:30
- 3:30 ;; 1:10
+ \sqrt{2}:1 ;; 2:\sqrt2
+ x:y=3:4 ;; 3:4
- 3/10 ;; 3:10
+ 15:30 ;; 1:2
""",
)


LABELLED = table(
    "the letter and the value that it labels",
    "another letter or value",
    r"""
+ \textbf{(C)} 12 ;; 12
+ \textbf{(C)} 12 ;; C
+ \text{(C)}\ 12 ;; C
- \textbf{(C)} 12 ;; D
- \textbf{(C)} 12 ;; 13
+ C ;; \textbf{(C)}\ 12
+ 12 ;; \textbf{(C)}\ 12
- \textbf{(B)} 12 ;; \textbf{(C)}\ 12
- \textbf{(C)} 13 ;; \textbf{(C)}\ 12
+ \textbf{(C) }12 ;; 12
+ \textbf{(E)}\ \frac{1}{2} ;; 0.5
""",
)


CHAINS = table(
    "a true chain, or several answers",
    "one of several answers, a false chain, or none that is known to be true",
    r"""
- x=1 x=2 ;; 2
- x=1 \; x=2 ;; 2
- x=1\ y=2 ;; 2
- x=1 \vee x=2 ;; 2
+ x=1 \vee x=2 ;; 1,2
- x=1 \iff x=2 ;; 2
- x=1 \implies x=2 ;; 2
- x=1 \to x=2 ;; 2
- x=1 \rightarrow x=2 ;; 2
- x=1 → x=2 ;; 2
- x=1 | x=2 ;; 2
- x=1 \mid x=2 ;; 2
- x=1 / x=2 ;; 2
- x=1 . x=2 ;; 2
- x=1. x=2 ;; 2
- x=1 : x=2 ;; 2
- x=1 & x=2 ;; 2
- x=1 \& x=2 ;; 2
- x=1 \oplus x=2 ;; 2
- x=1 \cup x=2 ;; 2
- x=1 \hspace{1cm} x=2 ;; 2
- x=1 \text{ then } x=2 ;; 2
- x=1 \text{ but } x=2 ;; 2
- x=1 but x=2 ;; 2
- x=1 then x=2 ;; 2
- x=1; x=2 ;; 2
- x=1 \approx x=2 ;; 1
- x=1 \approx x=2 ;; 2
- x=1 \sim x=2 ;; 2
- x=1 \equiv x=2 ;; 2
- x=1 \newline x=2 ;; 2
- x=1↵x=2 ;; 2
- x=1 -- x=2 ;; 2
- x=1 - x=2 ;; 2
- x=1 -> x=2 ;; 2
- x=1 => x=2 ;; 2
- x=1 ~ x=2 ;; 2
- x=1~x=2 ;; 2
- x=1y=2 ;; 2
- x=\sqrt{2} y=3 ;; 3
- x = 1 \ldots x=2 ;; 2
- x=1 \therefore x=2 ;; 2
- x=1 \\[2pt] x=2 ;; 2
- x=1 \qquad x=2 ;; 2
+ x=1 \qquad x=2 ;; 1,2
+ x=1 \\[2pt] x=2 ;; 1,2
+ x=1 \text{ or } x=2 ;; 1,2
+ x=1 or x=2 ;; 1,2
+ x=1 \text{ and } x=2 ;; 1,2
+ x=1,\quad x=2 ;; 1,2
+ x=1 \quad\text{or}\quad x=2 ;; 1,2
+ 1 \lor 2 ;; 1,2
- 5 \approx 6 ;; 5
+ \pi \approx 3.14 ;; \pi
+ \frac{1}{3} \approx 0.33 ;; \frac13
+ x = \frac{1}{3} \approx 0.33 ;; \frac13
+ 5 \quad \text{cm} ;; 5
+ A = \pi r^2 = 9\pi ;; 9\pi
+ S = \sum_{k=1}^3 k^2 = 14 ;; 14
+ \sum_{k=1}^3 k^2 = 14 ;; 14
+ x = 2+3 = 5 ;; 5
+ y = (x+1)^2 = x^2+2x+1 ;; x^2+2x+1
- y = (x+1)^2 = x^2+1 ;; x^2+1
- x = 2+2 = 5 ;; 5
- p \land q ;; p \lor q
+ p \land q ;; p \land q
- p \land q ;; q,p
- A \to B ;; B \to A
""",
)


QUANTITIES = table(
    "the name of a quantity set aside",
    "an equation that is not solved, or words that change the name",
    r"""
- not x = 5 ;; 5
- half of x = 5 ;; 5
- |x|=5 ;; 5
- x^2=4 ;; 4
- \log x = 2 ;; 2
- \sqrt{x}=3 ;; 3
- P(A)P(B) = 0.3 ;; 0.4
+ P(A|B) = 0.4 ;; 0.4
+ P(A \mid B) = \frac{0.2}{0.5} = 0.4 ;; 0.4
+ P(X \le 2) = 0.4 ;; 0.4
+ \Pr(X=2) = 0.4 ;; 0.4
+ E[X] = 3.5 ;; 3.5
+ \mathbb{E}[X] = 3.5 ;; 3.5
+ \operatorname{Var}(X) = 2 ;; 2
+ |AB| = 5 ;; AB=5
+ \overline{AB} = 5\text{ cm} ;; 5
+ m\angle A = 40^\circ ;; 40
+ \angle ABC = 40^\circ ;; 40^\circ
+ [ABC] = 12 ;; 12
+ S_{\triangle ABC} = 12 ;; 12
+ \frac{AB}{CD} = 2 ;; 2
+ \vec{v} = (1,2) ;; (1,2)
+ |\vec{v}| = 5 ;; 5
+ \overrightarrow{AB} = (3,4) ;; (3,4)
+ \sin A = \frac35 ;; \frac35
+ \tan\theta = 2 ;; 2
+ \det A = 5 ;; 5
+ \gcd(12,18) = 6 ;; 6
+ \text{Area} = 12 ;; 12
+ \text{Area of triangle } ABC = 12 ;; 12
+ f'(2) = 5 ;; 5
+ f(g(2)) = 5 ;; 5
+ a_{10} = 5 ;; 5
+ n(A \cup B) = 20 ;; 20
+ x_{\max} = 3 ;; 3
+ V_{\text{cone}} = 12\pi ;; 12\pi
+ |A \cup B| = 20 ;; 20
""",
)


CONGRUENCES = table(
    "the same class of numbers",
    "another class, or a number",
    r"""
+ x\equiv 3 \pmod 7 ;; x\equiv 3\pmod{7}
+ x \equiv 3 (mod 7) ;; x\equiv 3\pmod{7}
+ x \equiv 3 \ (\text{mod } 7) ;; x\equiv 3\pmod{7}
+ x \equiv 3 \text{ mod } 7 ;; x\equiv 3\pmod{7}
+ x \equiv 3 \mod{7} ;; x\equiv 3\pmod{7}
+ x \equiv 3 (\bmod 7) ;; x\equiv 3\pmod{7}
+ 3 \pmod 7 ;; x\equiv 3\pmod{7}
+ x \equiv -4 \pmod 7 ;; x\equiv 3\pmod{7}
- x \equiv 4 \pmod 7 ;; x\equiv 3\pmod{7}
- x \equiv 3 \pmod 8 ;; x\equiv 3\pmod{7}
- x \equiv 3 ;; x\equiv 3\pmod{7}
- y \equiv 3 \pmod 7 ;; x\equiv 3\pmod{7}
+ x \equiv 1, 4 \pmod 5 ;; x\equiv 1 \pmod 5 \text{ or } x\equiv 4 \pmod 5
+ x \equiv 1,4 \pmod{5} ;; x\equiv 4,1 \pmod 5
+ x \equiv 1 \text{ or } 4 \pmod{5} ;; x\equiv 4,1 \pmod 5
- x \equiv 1 \pmod{5} ;; x\equiv 4,1 \pmod 5
- 10 \bmod 7 ;; 3
- 10 \pmod 7 ;; 10
- 3 \pmod{7} ;; 7
+ p\equiv 1\pmod 4 ;; p \equiv 1 \pmod{4}
- n\equiv a\pmod{m} ;; n\equiv b\pmod{m}
""",
)


FULL_STOPS = table(
    "a sentence's end within the text",
    "two words",
    r"""
+ \text{Monday.} ;; Monday
+ \text{Yes.} ;; \text{Yes}
+ \text{No solution.} ;; \text{no solution}
+ 5\text{ cm.} ;; 5\text{ cm}
+ 5\text{ apples.} ;; 5
+ 6:15\text{ p.m.} ;; 6:15 PM
- \text{Monday or Tuesday.} ;; Monday
""",
)


SYSTEMS = table(
    "the same equations or cases",
    "other equations or cases, or one of them",
    r"""
+ \begin{cases} x=3 \\ y=4 \end{cases} ;; x=3, y=4
+ \begin{cases} x=3, \\ y=4. \end{cases} ;; x=3, y=4
+ \begin{cases} x=3 \\ y=4 \end{cases} ;; (3,4)
- \begin{cases} x=4 \\ y=3 \end{cases} ;; x=3, y=4
+ \begin{aligned} x &= 3 \\ y &= 4 \end{aligned} ;; x=3, y=4
+ \left\{ \begin{array}{l} x=3 \\ y=4 \end{array} \right. ;; x=3, y=4
+ \left\{\begin{matrix} x=3 \\ y=4 \end{matrix}\right. ;; x=3, y=4
+ \begin{array}{rcl} x & = & 3 \\ y & = & 4 \end{array} ;; x=3, y=4
+ \begin{align*} x &= 3 \\ y &= 4 \end{align*} ;; x=3,y=4
+ x=3, y=4 ;; \begin{cases} x=3 \\ y=4 \end{cases}
+ x=3 \text{ and } y=4 ;; \begin{cases} x=3 \\ y=4 \end{cases}
+ x=3;\ y=4 ;; x=3, y=4
+ y=4, x=3 ;; \begin{cases} x=3 \\ y=4 \end{cases}
- x=3 ;; \begin{cases} x=3 \\ y=4 \end{cases}
+ \begin{cases} x+y=5 \\ x-y=1 \end{cases} ;; \begin{cases} x-y=1 \\ x+y=5 \end{cases}
- \begin{cases} x+y=5 \\ x-y=2 \end{cases} ;; \begin{cases} x-y=1 \\ x+y=5 \end{cases}
+ f(x)=\begin{cases} x & x>0 \\ -x & x\le 0 \end{cases} ;; \begin{cases} x & \text{if } x>0 \\ -x & x\le 0 \end{cases}
+ \begin{cases} -x & \text{if } x\le 0 \\ x & x>0 \end{cases} ;; \begin{cases} x, & x>0 \\ -x, & x\le 0 \end{cases}
- \begin{cases} x & x>0 \\ -x & x\le 0 \end{cases} ;; \begin{cases} -x & x>0 \\ x & x\le 0 \end{cases}
- \begin{cases} x & x>0 \\ -x & x\le 0 \end{cases} ;; \begin{cases} x & x>1 \\ -x & x\le 1 \end{cases}
- \begin{cases} x & x>0 \\ -x & x\le 0 \end{cases} ;; x
- \begin{cases} x=1 \\ x=2 \end{cases} ;; 2
""",
)


LISTS = table(
    "the same answers, whatever stands between them",
    "one of several answers",
    r"""
+ (11,7) or (7,11) ;; (7,11),(11,7)
+ (7,11) \text{ or } (11,7) ;; (11,7) or (7,11)
+ (11,7), (7,11) ;; \{(7,11),(11,7)\}
- (11,7) ;; (7,11),(11,7)
+ (7,11) and (11,7) ;; (7,11),(11,7)
+ (7,11)\lor(11,7) ;; (7,11),(11,7)
+ x = 7, y = 11 \text{ or } x=11, y=7 ;; (7,11),(11,7)
+ (x,y)=(7,11) \text{ or } (11,7) ;; (7,11),(11,7)
+ (x,y)=(7,11),(11,7) ;; (7,11),(11,7)
+ 1;2 ;; 1,2
+ 1\quad 2 ;; 1,2
+ 1 \text{ or } 2 \text{ or } 3 ;; 1,2,3
+ 1, 2 \text{ or } 3 ;; 1,2,3
+ 1, 2, \text{ and } 3 ;; 1,2,3
+ \{1 \text{ and } 2\} ;; 1,2
+ x = 1 \text{ or } 2 ;; 1,2
+ x\in\{1,2\} ;; 1,2
+ \pm 2 \text{ or } 3 ;; -2,2,3
+ a=1, b=2 ;; \begin{cases} a=1 \\ b=2 \end{cases}
- a=1 \lor b=2 ;; 2
- x = 1 \text{ or } y = 2 ;; 2
- 2 \Rightarrow 3 ;; 3
- 1 \text{ to } 2 ;; 2
- 1 \quad 2 ;; 2
- 1 \\ 2 ;; 2
- 1 | 2 ;; 2
- 1; 2 ;; 2
- (1,2) \quad (3,4) ;; (3,4)
+ (1,2) \quad (3,4) ;; (1,2),(3,4)
+ 2\ \text{and}\ 3 ;; 2,3
+ x=2 \,\text{ or }\, x=3 ;; 2,3
+ \frac{\sqrt{3}}{2} \approx 0.87 ;; \frac{\sqrt3}{2}
- 0.87 \approx \frac{\sqrt{3}}{2} ;; \frac{\sqrt3}{2}
+ x \approx 0.87 ;; 0.87
- 2 \approx 3 ;; 2
- 2 = 3 ;; 3
- \text{A} 12 ;; 12
+ 17\quad ;; 17
+ f(x) = 2x+1 \quad ;; 2x+1
+ \begin{pmatrix} 1 & \quad 2 \\ 3 & 4 \end{pmatrix} ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
+ (1,\quad 2) ;; (1,2)
""",
)


# Written once all of the above were right.
AFTERWARDS = table(
    "the same answer",
    "one of several answers, an equation not solved, or equal only for some signs",
    r"""
- x^2y ;; |x^2y|
- \sqrt{a^2b^2c^2} ;; abc
- \sqrt{(x-y)^2} ;; x-y
+ \sqrt{(x-y)^2} ;; |x-y|
+ \sqrt{(x-y)^2} ;; |y-x|
- \ln(ab) ;; \ln a+\ln b
- \max(a,b) ;; \frac{a+b+|a-b|}{2}
- \frac{a+b+|a-b|}{2} ;; \frac{a+b-|a-b|}{2}
- \frac{a+b+|a-b|}{2} ;; a
- x|y| ;; |x|y
- (xy)^{1/2} ;; x^{1/2}y^{1/2}
- (x^2)^{1/2} ;; x
+ (x^3)^{1/3} ;; x
- |a-b|+|b-c| ;; |a-c|
- x=|y| ;; y=|x|
- y=|x| ;; y=x
- |x|=|y| ;; x=y
- x^2=y^2 ;; x=y
- |x+y|=1 ;; x+y=1
- xyz=6 ;; |xyz|=6
- (-1)^n ;; 1
- (-1)^{n}n! ;; n!
- \lfloor -x \rfloor ;; -\lfloor x \rfloor
+ \lceil x \rceil ;; -\lfloor -x \rfloor
- m^n ;; n^m
- a=1 \text{ or } b=2 \text{ or } c=3 ;; 3
- x = 5 \lor x = -5 ;; -5
+ x = 5 \lor x = -5 ;; \pm 5
+ x=5 \vee x=-5 ;; x=-5,5
- x=5 \oplus x=-5 ;; -5
- 3 \lor 5 ;; 5
- x=3 \wedge y=5 ;; 5
+ x=3 \wedge y=5 ;; x=3,y=5
+ x=3 \land y=5 ;; (3,5)
- x=3 \hfill x=5 ;; 5
- x=3 \,|\, x=5 ;; 5
- x=3 \;\;\; x=5 ;; 5
- x=3 \longrightarrow x=5 ;; 5
- x=3 \Longrightarrow x=5 ;; 5
- x=3 \Leftrightarrow x=5 ;; 5
- x=3 \leftrightarrow x=5 ;; 5
- x=3 \mapsto x=5 ;; 5
- x=3 \parallel x=5 ;; 5
- x=3 \vdots x=5 ;; 5
- x=3 \cdots x=5 ;; 5
- x=3 \text{ hence } x=5 ;; 5
- x=3 \text{ also } x=5 ;; 5
- x=3 \text{ , } x=5 ;; 5
- x=3 plus x=5 ;; 5
- x=3 \textbf{ or } x=5 ;; 5
+ x=3 \textbf{ or } x=5 ;; 3,5
+ x=3 \mathrm{or} x=5 ;; 3,5
+ x=3\mbox{ or }x=5 ;; 3,5
- x=3 ∨ x=5 ;; 5
- x=3 ⇒ x=5 ;; 5
- x=3 • x=5 ;; 5
- x=3 · x=5 ;; 5
- x=3 * x=5 ;; 5
- x=3 + x=5 ;; 5
- x=3 = x=5 ;; 5
- x=3 == x=5 ;; 5
- x=3 < x=5 ;; 5
- x=3 \ne x=5 ;; 5
- x=3 \cap x=5 ;; 5
- x=3 \setminus x=5 ;; 5
- x=3 \neg x=5 ;; 5
- x=3 \ast x=5 ;; 5
- x=3 @ x=5 ;; 5
- x=3 # x=5 ;; 5
- x=3 ? x=5 ;; 5
- x=3 ! x=5 ;; 5
- x=3 \_ x=5 ;; 5
- x=3 ... x=5 ;; 5
- x=3 (x=5) ;; 5
- x=3 [x=5] ;; 5
- x=3 \{x=5\} ;; 5
- x=3 \color{red} x=5 ;; 5
- x=3 \phantom{a} x=5 ;; 5
- x=3 \cr x=5 ;; 5
- x=3 \tag{1} x=5 ;; 5
- x=3 \vspace{1em} x=5 ;; 5
- x=3 \mid\mid x=5 ;; 5
- x=3 \| x=5 ;; 5
- x=3 \bigvee x=5 ;; 5
- x=3 \sqcup x=5 ;; 5
- x=3 \uplus x=5 ;; 5
- x=3 \& x=5 ;; 5
- x=3 \rightleftharpoons x=5 ;; 5
- x=3 \leq x=5 ;; 5
- x=3 \dots x=5 ;; 5
- x=3\text{ not }x=5 ;; 5
- x=3 except x=5 ;; 5
- x=3 versus x=5 ;; 5
- x=3 xor x=5 ;; 5
- x=3 nor x=5 ;; 5
- x=3 \text{ nor } x=5 ;; 5
- x=3 \text{ or maybe } x=5 ;; 5
- x=3 or x=5 ;; 3
- x=3 (or x=5) ;; 3
- x=3 \text{ (or 5)} ;; 3
- 3 (or 5) ;; 3
- 3 [5] ;; 3
- 3 \text{ (maybe)} ;; 3
- 3? ;; 5
- 3\text{ or so} ;; 3
- x = 3 = 5 ;; 5
- x = 3y = 5 ;; 5
- 3 = x = 5 ;; 5
+ 5 = x ;; 5
+ x = \frac{10}{2} = 5 ;; 5
+ 2+3 = 5 ;; 5
- x = y = 5 ;; 5
- x \neq 5 ;; 5
- x \approx 5.2 ;; 5
- \approx 5 ;; 6
+ \approx 5 ;; 5
+ T = 2\pi\sqrt{\frac{L}{g}} = 2\pi ;; 2\pi
+ \text{Total} = 3 \times 4 + 5 = 17 ;; 17
+ V = \frac{4}{3}\pi r^3 = 36\pi ;; 36\pi
- V = \frac{4}{3}\pi r^3 = 36\pi ;; \frac{4}{3}\pi r^3
+ \int_0^1 2x\,dx = 1 ;; 1
+ \lim_{x\to 0} \frac{\sin x}{x} = 1 ;; 1
+ \sum_{n=1}^\infty \frac{1}{2^n} = 1 ;; 1
- \sum_{n=1}^\infty \frac{1}{2^n} = 1 ;; 2
+ \binom{5}{2} = 10 ;; 10
+ \cos\theta = \frac12 ;; \frac12
- \cos x = \frac12 ;; \frac12
- \ln x = 3 ;; 3
- e^x = 3 ;; 3
- 2^x = 8 ;; 8
- -x = 5 ;; 5
- x^{-1} = 5 ;; 5
- \frac{1}{x} = 5 ;; 5
- x/2 = 5 ;; 5
- x+1 = 5 ;; 5
- 5x = 5 ;; 5
- x! = 120 ;; 120
- \sqrt{x} = 5 ;; 5
- |z| = 5 ;; 5
- \overline{z} = 5 ;; 5
- \lfloor x\rfloor = 5 ;; 5
- x^\circ = 5 ;; 5
- \text{twice } x = 10 ;; 10
- \text{-}x = 5 ;; 5
""",
)

# Behind a number these make it another, or nothing.
CHANGING_WORDS = """
squared, cubed, inverse, quadrillion, million, billion, trillion, quintillion, modulo, mod, undefined,
thousand, hundred, dozen, dozens, half, halves, thirds, quarters, score, gross, lakh, crore, grand, mil, k, M,
B, bn, mn, tn, percentage, permille, ppm, basis points, inverted, reciprocal, negated, negative, positive,
minus, plus, times, factorial, root, roots of, choose, power, powers of, square, cube, log, sine, cosine,
tangent, pi, e, i, degrees of, approximately, approx, about, roughly, maybe, perhaps, wrong, incorrect, false,
not, no, never, none, nothing, infinity, infinite, unknown, impossible, repeating, recurring, remainder,
rounded, exactly not, less, more, fewer, greater, over, under, below, above, ago, hence, base, binary, hex,
hexadecimal, octal, decimal, decimals, tenth, tenths, hundredth, thousandths, millionth, fold, double,
doubled, triple, tripled, twice, thrice, halved, quartered, conjugate, transpose, transposed, prime, primed,
dagger, star, hat, complement, absolute, norm, magnitude, mean, average, variance, sum, product, difference,
quotient, ratio, digits reversed, reversed, squared root, tetration, googol, gazillion, zillion, mole of, k
th, th, st, nd, rd, nth, x, y, z, n, a, b
""".replace("\n", " ").strip()
CHANGED = [
    Pair("boxed", f"5{space}{word}{end}", "5", False, "a word that may change the number")
    for word in CHANGING_WORDS.split(", ")
    for space, end in ((" ", ""), (r"\text{ ", "}"))
]

TABLES = {
    "NAMES_WITH_SIGNS": NAMES_WITH_SIGNS,
    "UNITS_BY_LIST": UNITS_BY_LIST,
    "BASES": BASES,
    "REAL_SETS": REAL_SETS,
    "RATIOS": RATIOS,
    "LABELLED": LABELLED,
    "CHAINS": CHAINS,
    "QUANTITIES": QUANTITIES,
    "CONGRUENCES": CONGRUENCES,
    "FULL_STOPS": FULL_STOPS,
    "SYSTEMS": SYSTEMS,
    "LISTS": LISTS,
    "AFTERWARDS": AFTERWARDS,
    "CHANGED": CHANGED,
}
VALUES = tuple(pair for found in TABLES.values() for pair in found)
