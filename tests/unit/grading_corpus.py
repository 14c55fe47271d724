r"""Answers with the verdict of a mathematician who grades MATH, and why; written for this project.

Each line of a table is ``+`` (right) or ``-`` (wrong), the response, the truth and the reason. What the mathematician
was told:

- Equal values are right in whatever form, if the form is final: 3+4 is no answer to a question about 7.
- An approximation is not the number, a point is not its swap, an interval has the brackets it has.
- A missing unit is forgiven, a wrong one is not. A comma before three digits separates thousands; the point is decimal.
"""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """One verdict. ``grader`` is a key of the table of graders in the test."""

    grader: str
    response: str
    truth: str
    is_right: bool
    reason: str


def pairs(grader: str, table: str) -> list[Pair]:
    found = []
    for line in table.strip().splitlines():
        verdict, _, rest = line.partition(" ")
        response, truth, reason = (field.strip() for field in rest.split(" ;; "))
        assert verdict in "+-", line
        found.append(Pair(grader, response.replace("↵", "\n"), truth.replace("↵", "\n"), verdict == "+", reason))
    return found


FRACTIONS = pairs(
    "boxed",
    r"""
+ \frac{1}{2} ;; \frac{1}{2} ;; the same
+ \dfrac{1}{2} ;; \frac{1}{2} ;; only larger in print
+ \tfrac12 ;; \frac{1}{2} ;; TeX takes single digits without braces
+ 1/2 ;; \frac{1}{2} ;; the slash is a fraction
+ 0.5 ;; \frac{1}{2} ;; exactly equal
+ .5 ;; 1/2 ;; exactly equal
+ \frac{2}{4} ;; \frac{1}{2} ;; equal, if not in lowest terms
+ \frac{-3}{4} ;; -\frac{3}{4} ;; the sign may stand above
+ -\frac{3}{4} ;; \frac{3}{-4} ;; the sign may stand below
+ 3\frac{1}{2} ;; \frac{7}{2} ;; a mixed number
+ 3 1/2 ;; 3.5 ;; a mixed number in plain text
+ -2\frac{1}{3} ;; -\frac{7}{3} ;; the sign of a mixed number is of the whole
+ 0.\overline{3} ;; \frac{1}{3} ;; a repeating decimal is exact
+ 0.1\overline{6} ;; \frac{1}{6} ;; a repeating decimal is exact
+ \frac{14}{2} ;; 7 ;; a fraction that is a whole number
+ \left(\frac{1}{2}\right) ;; \frac{1}{2} ;; brackets around everything mean nothing
+ \frac{1.5}{2} ;; 0.75 ;; equal values
- \frac{1}{3} ;; \frac{1}{2} ;; another fraction
- 0.33 ;; \frac{1}{3} ;; an approximation is not the number
- 0.3333333 ;; \frac{1}{3} ;; an approximation is not the number, however long
- 0.67 ;; \frac{2}{3} ;; rounded
- \frac{2}{1} ;; \frac{1}{2} ;; turned over
- 3\frac{1}{2} ;; \frac{3}{2} ;; a mixed number is a sum, not a product
- 3\frac{1}{3} ;; \frac{7}{2} ;; near, but another
- -\frac{1}{2} ;; \frac{1}{2} ;; another sign
- \frac{1}{0} ;; 0 ;; undefined
- \frac{1}{-2} ;; \frac{1}{2} ;; the sign below counts
- 1 ;; \frac{1}{2} ;; not the first number of the truth
- 2 ;; \frac{1}{2} ;; not the last number of the truth
- \frac{12}{25} ;; \frac{13}{25} ;; off by one
""",
)

UNITS = pairs(
    "boxed",
    r"""
+ 5 \text{ cm} ;; 5 ;; the truth leaves the unit to the question
+ 5 ;; 5 \text{ cm} ;; a missing unit is forgiven
+ 5\text{ cm} ;; 5\,\mathrm{cm} ;; the same unit
+ 5 centimeters ;; 5\text{ cm} ;; the unit's long name
+ 12\text{ square units} ;; 12 ;; units of the question
+ 25\pi \text{ cm}^2 ;; 25\pi ;; the unit is squared, the value is not
+ 25\pi ;; 25\pi \text{ square inches} ;; a missing unit is forgiven
+ 90^\circ ;; 90 ;; degrees are a unit
+ 90 ;; 90^{\circ} ;; a missing unit is forgiven
+ 90 degrees ;; 90^\circ ;; degrees in words
+ \$5.00 ;; 5 ;; dollars and cents
+ \$32,000 ;; 32000 ;; dollars with a separator
+ 5 dollars ;; \$5 ;; dollars in words
+ 60\text{ mph} ;; 60 ;; miles per hour
+ 60 \text{ miles per hour} ;; 60\text{ miles/hour} ;; two spellings
+ 7\text{ apples} ;; 7 ;; what is counted may be named
+ 7 ;; 7\text{ ways} ;; what is counted may be left out
+ 3\sqrt{2}\text{ ft} ;; 3\sqrt{2} ;; a unit behind a root
+ 1011_2 ;; 1011_{2} ;; the base may have braces
+ 1011 ;; 1011_2 ;; the question named the base
+ 5 apples ;; 5 ;; what is counted may be named
+ \text{12 cm} ;; 12 ;; all in text
- 5 million ;; 5 ;; not a unit but a factor
- 5\text{ million} ;; 5 ;; not a unit but a factor
- 5 xy ;; 5 ;; variables, not a unit
- 5\text{ m} ;; 5\text{ cm} ;; a wrong unit
- 5 km ;; 5\text{ miles} ;; a wrong unit
- 12\text{ cm}^3 ;; 12\text{ cm}^2 ;; a volume is no area
- 12\text{ cm} ;; 12\text{ cm}^2 ;; a length is no area
- 50\text{ cents} ;; \$50 ;; cents are no dollars
- 6\text{ cm} ;; 5\text{ cm} ;; the unit alone earns nothing
- 50 ;; 500\text{ m} ;; another number
- 5x ;; 5 ;; x is a variable, not a unit
- 5y ;; 5 ;; y is a variable, not a unit
- 90^\circ ;; 60^\circ ;; another angle
- 1011_3 ;; 1011_2 ;; another base
- 11 ;; 1011_2 ;; the decimal value, where base 2 was asked
- \text{cm} ;; 5\text{ cm} ;; a unit without a number
- 5\text{ or more} ;; 5 ;; not a number but a condition
- 0.5\text{ hours} ;; 30\text{ hours} ;; the number of another unit
""",
)

SEPARATORS = pairs(
    "boxed",
    r"""
+ 1,000 ;; 1000 ;; a comma before three digits
+ 1{,}000 ;; 1000 ;; TeX's comma without space
+ 1,\!000 ;; 1000 ;; TeX's other comma without space
+ 1000 ;; 1,000 ;; the truth has the separator
+ 10\,000 ;; 10000 ;; a thin space before three digits
+ 11,\! 111,\! 100 ;; 11111100 ;; TeX's other comma and a space
+ 12,345,678 ;; 12345678 ;; two separators
+ 1,234.5 ;; 1234.5 ;; a separator and a point
+ -1,000 ;; -1000 ;; with a sign
+ 1, 2, 300 ;; 300, 1, 2 ;; three numbers, one of three digits
+ 1.000 ;; 1 ;; the point is decimal, never a separator
- 1,000 ;; 1 ;; a thousand is not one
- 1,00 ;; 100 ;; two digits behind the comma: a pair
- 1,000 ;; 1,001 ;; off by one
- 3,5 ;; 3.5 ;; the comma is never decimal
- 1.000 ;; 1000 ;; the point is never a separator
- 1.234,5 ;; 1234.5 ;; no European numbers
- 1, 000 ;; 1000 ;; with a space it is a list
- 10,000 ;; 100,00 ;; misplaced separators mean two numbers
- (1,000) ;; 1000 ;; inside brackets the comma separates coordinates
- 12,345 ;; 12345678 ;; the beginning of the number
- 1,000,00 ;; 100000 ;; no such grouping
""",
)

LATEX = pairs(
    "boxed",
    r"""
+ 2\sqrt{3} ;; \sqrt{12} ;; equal roots
+ \sqrt3 ;; \sqrt{3} ;; braces are optional
+ \frac{\sqrt{2}}{2} ;; \frac{1}{\sqrt{2}} ;; rationalised or not
+ \sqrt[3]{8} ;; 2 ;; a cube root
+ \sqrt[3]{-8} ;; -2 ;; the real root, as in school
+ 2^{10} ;; 1024 ;; a power is a closed form
+ 2^{-3} ;; \frac18 ;; a negative power
+ x^{2} ;; x^2 ;; braces are optional
+ \left( 3, \frac{\pi}{2} \right) ;; (3,\pi/2) ;; left and right only stretch the brackets
+ 2\pi ;; 2 \cdot \pi ;; the sign of multiplication is optional
+ \pi r^2 ;; r^2\pi ;; factors commute
+ 2*sqrt(3) ;; 2\sqrt{3} ;; plain text for a root
+ 3π/4 ;; \frac{3\pi}{4} ;; the letter pi itself
+ 6.02 \times 10^{23} ;; 602000000000000000000000 ;; scientific notation
+ \log_2 8 ;; 3 ;; a logarithm is a closed form
+ \ln e^2 ;; 2 ;; a logarithm is a closed form
+ e^{i\pi} ;; -1 ;; Euler
+ 3+4i ;; 4i+3 ;; terms commute
+ (1+i)^2 ;; 2i ;; equal complex numbers
+ \binom{5}{2} ;; 10 ;; a closed form
+ 5! ;; 120 ;; a closed form
+ \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix} ;; two kinds of brackets
+ \begin{pmatrix} 0.5 \\ -1 \end{pmatrix} ;; \begin{pmatrix} \frac12 \\ -1 \end{pmatrix} ;; equal entries
+ \left[ \begin{array}{c} 2 \\ 3 \end{array} \right] ;; \begin{pmatrix} 2 \\ 3 \end{pmatrix} ;; an array in brackets
+ \cos^2 x ;; 1-\sin^2 x ;; an identity
+ |-3| ;; 3 ;; an absolute value
+ x² + 1 ;; x^2+1 ;; a raised digit
+ x⁴ ;; x^4 ;; a raised digit
+ log₂ 8 ;; 3 ;; a lowered digit
+ （1，2） ;; (1,2) ;; wide brackets and comma
- x³ ;; x^2 ;; another power
- x⁴ ;; 4x ;; a raised digit is no factor
- 2³ ;; 23 ;; a raised digit is no digit
- 2\sqrt{3} ;; 3\sqrt{2} ;; swapped
- \sqrt{2} ;; 1.414 ;; the truth is a decimal, and exact
- 1.41421356 ;; \sqrt{2} ;; an approximation is not the number
- 3.14159265 ;; \pi ;; an approximation is not the number
- \frac{22}{7} ;; \pi ;; an approximation is not the number
- \sqrt{13} ;; \sqrt{12} ;; near, but another
- 2^{11} ;; 1024 ;; another power
- 10^{2} ;; 2^{10} ;; base and exponent swapped
- \sqrt{x^2} ;; x ;; differs where x is negative
- -x^2 ;; (-x)^2 ;; the sign is not squared
- \begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix} ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; transposed
- \begin{pmatrix} 1 & 2 \end{pmatrix} ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; a row is no column
- \begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix} ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; one entry differs
- 6.02 \times 10^{24} ;; 6.02 \times 10^{23} ;; another power of ten
- 3-4i ;; 3+4i ;; conjugate
- \log 8 ;; \ln 8 ;; another base
- \sin x ;; \cos x ;; another function
- 2(3) ;; 5 ;; a product, which math-verify takes for 2 + 3
- \frac{4}{2}\frac{1}{2} ;; \frac{5}{2} ;; a product, which math-verify takes for 2 + 1/2
- 5!! ;; 120 ;; the double factorial is 15
- 1/x ;; x ;; turned over
- \sqrt{-4} ;; 2 ;; imaginary
""",
)

PERCENTS = pairs(
    "boxed",
    r"""
+ 50\% ;; 50\% ;; the same
+ 50\% ;; 0.5 ;; equal values
+ 0.5 ;; 50\% ;; equal values
+ 50 ;; 50\% ;; the question asked for percent
+ 50\% ;; 50 ;; the question asked for percent
+ 50 percent ;; 50\% ;; the word
+ \frac12 ;; 50\% ;; equal values
+ 12.5\% ;; \frac18 ;; equal values
+ 50\text{ percent} ;; 50 ;; the word
- 0.5 ;; 50 ;; a hundredth of it
- 0.5\% ;; 50\% ;; a hundredth of it
- 0.5\% ;; 0.5 ;; 0.005 is not 0.5
- 5\% ;; 50\% ;; a tenth of it
- 49\% ;; 50\% ;; near, but another
- 150\% ;; 0.5 ;; another
- 50\text{ cm} ;; 50\% ;; a wrong unit
- \% ;; 50\% ;; no number
""",
)

INTERVALS = pairs(
    "boxed",
    r"""
+ (1,2] ;; (1,2] ;; the same
+ \left(1, 2\right] ;; (1,2] ;; left and right only stretch the brackets
+ [0, 0.5) ;; [0, \frac{1}{2}) ;; equal ends
+ (-\infty, 3) ;; (-\infty,3) ;; the same
+ x<3 ;; (-\infty,3) ;; the same set
+ 1 < x \le 2 ;; (1,2] ;; the same set
+ (1,2] ;; 1 < x \leq 2 ;; the same set
+ x \in [1,2] ;; [1,2] ;; the set of x
+ [1,2] ;; x \in [1,2] ;; the set of x
+ (2,\infty)\cup(-\infty,1) ;; (-\infty,1)\cup(2,\infty) ;; a union has no order
+ x<1 \text{ or } x>2 ;; (-\infty,1)\cup(2,\infty) ;; the same set
+ 3 > x ;; x < 3 ;; turned round
+ 2x+2y < 6 ;; x+y < 3 ;; a positive multiple
+ (-\infty, +\infty) ;; (-\infty,\infty) ;; the plus is optional
+ [-2, \sqrt{8}] ;; [-2, 2\sqrt{2}] ;; equal ends
- [1,2] ;; (1,2] ;; the end 1 belongs to it
- (1,2) ;; (1,2] ;; the end 2 does not belong to it
- (1,2] ;; [1,2) ;; the other end is closed
- (2,1] ;; (1,2] ;; swapped ends
- (1,3] ;; (1,2] ;; another end
- x \le 3 ;; (-\infty,3) ;; 3 belongs to it
- x > 3 ;; (-\infty,3) ;; the other side
- (-\infty,1) ;; (-\infty,1)\cup(2,\infty) ;; half of it
- (-\infty,1]\cup(2,\infty) ;; (-\infty,1)\cup(2,\infty) ;; 1 belongs to it
- (-\infty,1)\cup(2,\infty)\cup(1,2) ;; (-\infty,1)\cup(2,\infty) ;; one part too many
- (1,2) ;; [1,2] ;; open is not closed
- -x-y < 3 ;; x+y < 3 ;; a negative factor turns the sign
- 2x < 6 ;; x < 3 ;; not solved
- y < 3 ;; x < 3 ;; another variable
- 1 < x < 2 ;; 1 < x \le 2 ;; the end 2 does not belong to it
- (\infty,3) ;; (-\infty,3) ;; another infinity
- 3 ;; (-\infty,3) ;; an end is no interval
- [2] ;; [1,2] ;; an end is no interval
""",
)

SETS = pairs(
    "boxed",
    r"""
+ \{2,1\} ;; \{1,2\} ;; a set has no order
+ \{1,1,2\} ;; \{1,2\} ;; a set counts nothing twice
+ 2, 1 ;; 1, 2 ;; a list of solutions has no order
+ 1 \text{ and } 2 ;; 1, 2 ;; a list in words
+ 1 or 2 ;; 1,2 ;; a list in words
+ x = 1, x = 2 ;; 1, 2 ;; solutions with their name
+ x=2 \text{ or } x=1 ;; x=1,x=2 ;; solutions with their name
+ \{1,2\} ;; 1,2 ;; the set of solutions
+ 1,2 ;; \{1,2\} ;; the set of solutions
+ \pm 3 ;; -3, 3 ;; both signs
+ 1 \pm \sqrt{2} ;; 1+\sqrt{2}, 1-\sqrt{2} ;; both signs
+ (1,2) ;; (1, 2) ;; spaces mean nothing
+ (0.5, -1) ;; \left(\frac12, -1\right) ;; equal coordinates
+ (1,2),(3,4) ;; (3,4),(1,2) ;; a list of points has no order
+ \{(1,2),(3,4)\} ;; (1,2),(3,4) ;; the set of points
+ (1, 2, 3) ;; (1,2,3) ;; a triple
+ \{5\} ;; 5 ;; the only element
+ \emptyset ;; \varnothing ;; two signs for the empty set
+ \{\} ;; \emptyset ;; empty braces
+ \sqrt{2},\sqrt{3} ;; \{\sqrt{3},\sqrt{2}\} ;; elements that are no numbers
+ 3, -3 ;; \pm 3 ;; both signs
- (2,1) ;; (1,2) ;; a point has an order
- (1,2) ;; 1,2 ;; a point is no list of solutions
- 1,2 ;; (1,2) ;; a list of solutions is no point
- (1,2) ;; \{1,2\} ;; a point is no set
- \{1,2,3\} ;; \{1,2\} ;; one too many
- \{1\} ;; \{1,2\} ;; one too few
- 1,2,3,4,5,6,7,8,9,10 ;; 3 ;; naming everything is no answer
- 1 ;; 1,2 ;; one of two solutions
- 1,1,2 ;; 1,2,2 ;; other multiplicities
- (1,2,3) ;; (1,2) ;; another dimension
- (1,3,2) ;; (1,2,3) ;; a triple has an order
- (1,-2) ;; (1,2) ;; another sign
- (1,2),(4,3) ;; (1,2),(3,4) ;; one point is swapped
- 3 ;; \pm 3 ;; one of two signs
- \pm 3 ;; 3 ;; one sign too many
- 1 \pm \sqrt{3} ;; 1 \pm \sqrt{2} ;; another root
- \{0\} ;; \emptyset ;; zero is an element
- 0 ;; \emptyset ;; zero is no set
- [1,2,3] ;; \{1,2,3\} ;; a list with an order is no set
- x = 1, y = 2 ;; x = 2, y = 1 ;; each name has its value
- 2, 1 ;; x = 1, y = 2 ;; without names the order is lost
""",
)

SIGNS = pairs(
    "boxed",
    r"""
+ -5 ;; -5 ;; the same
+ −5 ;; -5 ;; the long minus of print
+ - 5 ;; -5 ;; a space behind the sign
+ +5 ;; 5 ;; the plus is optional
+ -0 ;; 0 ;; zero has no sign
+ 007 ;; 7 ;; leading zeros
+ 5.0 ;; 5 ;; equal values
+ 5. ;; 5 ;; the sentence's full stop
- 5 ;; -5 ;; the sign is missing
- -5 ;; 5 ;; one sign too many
- 5.01 ;; 5 ;; near, but another
- 50 ;; 5 ;; a digit too many
- 5 ;; 0.5 ;; a tenth
- 4.999999 ;; 5 ;; near, but another
- 123456788 ;; 123456789 ;; the last digit differs
- 1234567891011121314151617181920 ;; 1234567891011121314151617181921 ;; the last digit of many differs
- 0 ;; 5 ;; another
- -\sqrt{2} ;; \sqrt{2} ;; one sign too many
- 0.1000000001 ;; 0.1 ;; near, but another
- 1e-5 ;; 1e5 ;; another power of ten
""",
)

ALGEBRA = pairs(
    "boxed",
    r"""
+ x^2+2x+1 ;; (x+1)^2 ;; expanded
+ (x+1)(x-1) ;; x^2-1 ;; factored
+ x(x+1) ;; x^2+x ;; a letter in front of brackets is a factor
+ \frac{x^2-1}{x-1} ;; x+1 ;; equal but at one point
+ 2(x+3) ;; 2x+6 ;; expanded
+ a+b ;; b+a ;; terms commute
+ xy ;; yx ;; factors commute
+ \frac{1}{x}+\frac{1}{y} ;; \frac{x+y}{xy} ;; a common denominator
+ 0.5x ;; \frac{x}{2} ;; equal coefficients
+ x=5 ;; 5 ;; the name is optional
+ 5 ;; x=5 ;; the name is optional
+ y = 2x+3 ;; 2x+3 ;; the name is optional
+ 2x+3 ;; y=2x+3 ;; the name is optional
+ 2x-y+3=0 ;; y=2x+3 ;; a multiple of the equation
+ x^2+y^2=1 ;; 1=x^2+y^2 ;; sides swapped
+ 4x+2y=6 ;; 2x+y=3 ;; a multiple of the equation
+ x = 2+3 = 5 ;; 5 ;; the last side of a chain
+ \frac{dy}{dx} = 2x ;; 2x ;; the name is optional
+ f(x) = x^2 ;; x^2 ;; the name is optional
+ \sqrt{2} \approx 1.41 ;; \sqrt{2} ;; what is exact stands first
+ e^{x+y} ;; e^x e^y ;; a law of powers
+ 2^{n+1} ;; 2\cdot 2^n ;; a law of powers
- x^2+2x+2 ;; (x+1)^2 ;; another constant
- x^2+1 ;; (x+1)^2 ;; the middle term is missing
- (x-1)^2 ;; (x+1)^2 ;; another sign
- x+1 ;; x-1 ;; another sign
- 2x+3 ;; 2x+4 ;; another constant
- 2y+3 ;; 2x+3 ;; another variable
- y=5 ;; x=5 ;; another variable
- 2x-y+4=0 ;; y=2x+3 ;; another constant
- y=2x-3 ;; y=2x+3 ;; another sign
- x^2+y^2=2 ;; x^2+y^2=1 ;; another constant
- 2x=10 ;; 5 ;; not solved
- x ;; 5 ;; a name is no value
- 2^{-201} ;; 2^{-200} ;; half of it, though both are tiny
- 2^{200}+1 ;; 2^{200} ;; one more, though both are huge
- x+y ;; xy ;; a sum is no product
- \frac{x}{y} ;; \frac{y}{x} ;; turned over
- 3+4 ;; 7 ;; arithmetic left undone restates the question
- 123 \times 456 ;; 56088 ;; arithmetic left undone restates the question
- 10-3 ;; 7 ;; arithmetic left undone restates the question
- \frac{1}{2}+\frac{1}{3} ;; \frac{5}{6} ;; arithmetic left undone restates the question
- 1.41 \approx \sqrt{2} ;; \sqrt{2} ;; the approximation is what was given
- 2^{n+1} ;; 2^n+1 ;; the exponent's brackets
- a_1+a_2 ;; a_1+a_3 ;; another index
- \frac{x+1}{2} ;; x+\frac12 ;; half of x is missing
""",
)

WORDS = pairs(
    "boxed",
    r"""
+ \text{Monday} ;; Monday ;; the same word
+ monday ;; \text{Monday} ;; capitals do not count
+ \text{even} ;; \textbf{even} ;; bold or not
+ \text{no solution} ;; \text{No solution} ;; capitals do not count
+ \text{(C)} ;; C ;; brackets around a letter
+ C ;; \text{(C)} ;; brackets around a letter
+ \mathrm{yes} ;; Yes ;; capitals do not count
+ \text{east} ;; east. ;; the sentence's full stop
+ \mathbb{R} ;; \mathbb{R} ;; the same sign
+ \infty ;; \infty ;; the same sign
+ 3:30 ;; 3:30 ;; the same time
+ \text{red and blue} ;; red and blue ;; words with an and between them
+ \text{A, B} ;; B, A ;; letters of a question with several
+ \text{no} ;; No ;; capitals do not count
- on ;; no ;; the same letters, another word
- \text{A, C} ;; A, B ;; one letter differs
- \text{Tuesday} ;; \text{Monday} ;; another word
- \text{odd} ;; \text{even} ;; another word
- \text{tseaw} ;; \text{sweat} ;; the same letters, another word
- god ;; dog ;; the same letters, another word
- \text{not even} ;; \text{even} ;; the opposite
- D ;; C ;; another letter
- \text{C or D} ;; C ;; two letters are no choice
- -\infty ;; \infty ;; the other infinity
+ 3:30\text{ p.m.} ;; 3:30 PM ;; two spellings
+ n \equiv 3 \pmod{7} ;; n\equiv 3\pmod{7} ;; the same congruence
- n \equiv 4 \pmod{7} ;; n\equiv 3\pmod{7} ;; another remainder
- 3:30\text{ a.m.} ;; 3:30\text{ p.m.} ;; the other half of the day
- 3:31 ;; 3:30 ;; another time
- 1:10 ;; 3:30 ;; a time is no fraction
- \mathbb{Q} ;; \mathbb{R} ;; another set
- \text{Monday or Tuesday} ;; \text{Monday} ;; hedged
- 5 ;; \text{five apples} ;; a number is no text
""",
)

STRICT = pairs(
    "strict",
    r"""
+ So the sum is $\boxed{42}$. ;; 42 ;; one box
+ First \boxed{3}, and a check shows that the final result is \boxed{5}. ;; 5 ;; the last box counts
+ \boxed{\frac{1}{\sqrt{2}}} ;; \frac{\sqrt2}{2} ;; nested braces
+ \boxed{\{1,2\}} ;; \{1,2\} ;; escaped braces
+ \fbox{7} ;; 7 ;; the other box
+ \boxed 7 ;; 7 ;; a box without braces
+ The solutions are $\boxed{1}$ and $\boxed{2}$. ;; 1,2 ;; boxes with nothing but an and between them are one answer
+ \boxed{x=\boxed{3}} ;; 3 ;; a box in a box
+ It is \boxed{12}. ;; It follows that $n = \boxed{12}$. ;; the truth is a solution
+ It is \boxed{12}. ;; $12$ ;; the truth in dollars
+ It is \boxed{$12$}. ;; 12 ;; dollars within the box
+ \[\boxed{6}\]↵The end. ;; 6 ;; in display
- First \boxed{5}, but wait, a check shows that the final result is \boxed{3}. ;; 5 ;; the last box counts
- $\boxed{1}$ or $\boxed{2}$ ;; 2 ;; two boxes side by side hedge
- The answer is 42. ;; 42 ;; no box
- $42$ ;; 42 ;; no box
- \boxed{42 ;; 42 ;; the box never closes
- \boxed{5} and so \boxed{4 ;; 5 ;; the last box never closes
- \boxed{} ;; 42 ;; an empty box
- \boxed{ } 42 ;; 42 ;; an empty box, the number outside
- boxed{42} ;; 42 ;; the backslash is missing
- It is \boxed{13}. ;; We see \boxed{13} first, but then the correct value is \boxed{12}. ;; the truth's last box counts
- \boxed{42} ;; 43 ;; another number
-  ;; 42 ;; nothing
""".replace("-  ;;", "- . ;;"),
)

FLEXIBLE = pairs(
    "flexible",
    r"""
+ So the sum is $\boxed{42}$. ;; 42 ;; a box counts first
+ The final answer is 42. ;; 42 ;; stated
+ The answer is $\frac{1}{2}$ since half of them are red. ;; 0.5 ;; stated, with a reason
+ **Answer:** 3/4 ;; 0.75 ;; stated in bold
+ Answer: \(x = 5\) ;; 5 ;; stated in maths
+ The answer is (1, 2). ;; (1,2) ;; stated in plain text
+ The answer is Monday. ;; Monday ;; a word
+ Hence $x = 5$, so that $y = 7$. ;; 7 ;; the last formula
+ We get \[ x = \frac{3}{4} \] ;; \frac34 ;; the last display
+ Thus $x$ equals 5. ;; 5 ;; the number ends last
+ It costs $5 and then $6. ;; 6 ;; a price is no formula
+ It costs \$1,250. ;; 1250 ;; a price with a separator
+ They need 12 buses. ;; 12 ;; the last number
+ That makes 25%. ;; \frac14 ;; a percentage
+ The answer is 5. I used 3 steps. ;; 5 ;; stated before other numbers
+ The answer is 4. Wait, the answer is 5. ;; 5 ;; the last statement
- The answer is 5. I used 3 steps. ;; 3 ;; stated before other numbers
- The answer is 5. Wait, the answer is 4. ;; 5 ;; the last statement
- I got \boxed{4}, or is it 5? ;; 5 ;; a box counts first
- The answer is $x+1$ where $x=5$. ;; 5 ;; not evaluated
- Hence $x = 5$, so that $y = 7$. ;; 5 ;; the last formula
- 7 is what I found for $x$. ;; 7 ;; the last formula is no value
- There are 12 buses of 40 seats. ;; 12 ;; the last number is another
- I do not know. ;; 5 ;; no number
- The answer is unknown, but it may be 5. ;; 5 ;; the statement is no answer
- \boxed{5 ;; 5 ;; a box that never closes is no answer
- The answer is 5 or 6. ;; 5 ;; hedged
- The answer is between 5 and 6. ;; 6 ;; no value
- 10-3 ;; -3 ;; the minus is a subtraction
""",
)

GSM8K = pairs(
    "gsm8k strict",
    r"""
+ 6*7=42↵#### 42 ;; 42 ;; the format of the data set
+ #### 1,080 ;; 1080 ;; a separator
+ #### $18.00 ;; 18 ;; dollars and cents
+ #### -5 ;; -5 ;; a sign
+ #### 42 clips ;; 42 ;; a word behind it
+ #### 42↵- 3 steps were used ;; 42 ;; a list behind it is no subtraction
+ #### 3, no: #### 5 ;; 5 ;; the last mark
+ #### 1/2 ;; 0.5 ;; a fraction
- The answer is 42. ;; 42 ;; no mark
- #### 42 #### 43 ;; 42 ;; the last mark
- #### 1/2 ;; 1 ;; the numerator is not the number
- #### 1,2 ;; 12 ;; a pair
- #### 3,5 ;; 3 ;; a pair
- #### 2^10 ;; 2 ;; the base is not the power
- #### 12 - 3 ;; 12 ;; the first term is not the difference
- #### 1e3 ;; 1 ;; the digits before the power are not the number
- #### 43 ;; 42 ;; another number
- ### 42 ;; 42 ;; a heading
""",
) + pairs(
    "gsm8k flexible",
    r"""
+ The answer is 42. ;; 42 ;; the last number
+ It costs $1,250 in all! ;; 1250 ;; a separator
+ 42/2 is 21 ;; 21 ;; the last number
+ One half is 3/4 of 2/3, which is 1/2. ;; 0.5 ;; a fraction
- 42 and then 43 ;; 42 ;; the last number
- The share is 3/4. ;; 4 ;; the denominator is not the number
- The roots are 5,6 ;; 56 ;; two numbers
- forty-two ;; 42 ;; no digits
- 10-3 ;; -3 ;; a subtraction
""",
)

EXACT = pairs(
    "exact",
    r"""
+ 42 ;; 42 ;; the same
+ ↵42↵ ;; 42 ;; white space around it
- 42. ;; 42 ;; another character
- 042 ;; 42 ;; another character
- 4 2 ;; 42 ;; white space inside
- The answer is 42 ;; 42 ;; more than the answer
- Yes ;; yes ;; capitals count
""",
)

# What a mathematician would say, and what the grader does not. Each says why it stays so; all but two err against the
# response.
KNOWN_LIMITS = pairs(
    "boxed",
    r"""
+ five ;; 5 ;; number words are words
+ 5 \text{ million} ;; 5000000 ;; number words are words
+ 0.05\text{ m} ;; 5\text{ cm} ;; units are not converted
+ \frac{\pi}{2} ;; 90^\circ ;; degrees are a unit, not a factor
+ \sin 30^\circ ;; \frac12 ;; degrees within a formula are not read
+ \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; (1,2) ;; a column is not read as a point
+ \langle 1,2 \rangle ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; a column is not read as a point
+ 2:4 ;; 1:2 ;; a ratio is compared as text, because 1:10 is no 3:30
+ (-\infty,\infty) ;; \mathbb{R} ;; signs of sets are compared as text
+ (-\infty,1)\cup(2,\infty)\cup(5,6) ;; (-\infty,1)\cup(2,\infty) ;; parts contained in others are not dropped
+ (-\infty,2)\cup(1,3) ;; (-\infty,3) ;; overlapping parts are not joined
+ xyz ;; zyx ;; three letters in a row are a word
+ f(x) = 2x ;; y = 2x ;; two names differ
+ 100,200,300 ;; 100, 200, 300 ;; commas before three digits separate thousands
+ x = 1, y = 2 ;; (1,2) ;; named values are not read as a point
+ 0.333 ;; 0.\overline{3} ;; an approximation, which a mild grader would take
+ \sum_{k=1}^{3} k^2 ;; 14 ;; sums are never evaluated
- \sqrt{16} ;; 4 ;; a closed form may restate the question
- x^2+2x+1 ;; (x+1)^2 ;; where the question was to factor
""",
)

CHOICES = pairs(
    "choice",
    r"""
+ The answer is (B). ;; B ;; stated
+ Answer: b ;; B ;; a small letter behind a colon
+ **C** ;; C ;; bold
+ \boxed{D} ;; D ;; boxed
+ $\boxed{\text{(D)}}$ ;; D ;; boxed as text
+ $\boxed{\textbf{(C)}\ 42}$ ;; C ;; boxed with the option's text
+ B ;; B ;; a lone letter
+ (c) ;; C ;; a lone letter in brackets
+ A ;; (A) ;; the truth in brackets
+ The answer is A. ;; A ;; the letter A
+ The answer is A because both sides are even. ;; A ;; the letter A with a reason
+ Answer: A) a triangle ;; A ;; with the option's text
+ The answer is B. Wait, no. The answer is C. ;; C ;; the last statement
+ Option A is wrong, so option B is correct. ;; B ;; stated the other way round
+ (C) is the right answer. ;; C ;; stated the other way round
+ I choose D because it is even. ;; D ;; chosen
+ The correct option is **D** ;; D ;; stated in bold
+ **Answer:** C ;; C ;; stated in bold
+ The answer to question 3 is D. ;; D ;; with the question
+ Let A be a set with 3 elements.↵So it must be B. ;; B ;; the last line points at it
+ A is too small, and so is C.↵↵D ;; D ;; the last line is the letter
+ The answer is B, as A is too small. ;; B ;; other letters in the reason
+ <answer>C</answer> ;; C ;; tagged
+ The answer is \(B\). ;; B ;; in maths
+ The answer is therefore D ;; D ;; an adverb
+ A. a triangle ;; A ;; one line that begins with the letter
- The answer is (B). ;; C ;; another letter
- The answer is a triangle. ;; A ;; the article
- The answer is A triangle. ;; A ;; the article, capital
- A good idea is to draw it. ;; A ;; the article
- The answer is B. Wait, no. The answer is C. ;; B ;; the last statement
- The answer is A or B. ;; A ;; hedged
- The answer is A or B. ;; B ;; hedged
- Answer: A, B ;; A ;; hedged
- \boxed{A \text{ or } B} ;; B ;; hedged
- The answer is not B. ;; B ;; denied
- Option B is incorrect. ;; B ;; denied
- \boxed{5} ;; B ;; no letter
- \boxed{B=5} ;; B ;; a formula
- \boxed{C(5,2)} ;; C ;; a formula
- The answer is E. ;; D ;; no such option
- A. 42↵B. 43↵C. 44 ;; C ;; the options repeated
- Vitamin A is best for it. ;; A ;; a word with a letter
- Answer: Apple ;; A ;; a word
- I think it is hard. ;; B ;; no letter
- The first letter is D, the answer is 4. ;; D ;; the statement names no letter
- The answer is B and C. ;; C ;; two letters
- Both A and B are true. ;; B ;; nothing chosen
- **A** or **B** ;; A ;; two bold letters
""",
) + pairs(
    "choice of nine",
    r"""
+ The answer is I. ;; I ;; the letter I
+ \boxed{I} ;; I ;; the letter I
- The answer is what I think. ;; I ;; the pronoun
- Answer: I think it is hard. ;; I ;; the pronoun
- I ;; H ;; another letter
- It is as I said: I'm not sure. ;; I ;; the pronoun
""",
)

CORPUS = (
    FRACTIONS
    + UNITS
    + SEPARATORS
    + LATEX
    + PERCENTS
    + INTERVALS
    + SETS
    + SIGNS
    + ALGEBRA
    + WORDS
    + STRICT
    + FLEXIBLE
    + GSM8K
    + EXACT
    + CHOICES
)
