r"""Answers with the verdict of a mathematician who grades MATH, and why; written for this project.

Each line of a table is ``+`` (right) or ``-`` (wrong), the response, the truth and the reason. What the mathematician
was told:

- Equal values are right in whatever form, if the form is final: 3+4 is no answer to a question about 7.
- An approximation is not the number, a point is not its swap, an interval has the brackets it has.
- A missing unit is forgiven, a wrong one is not. A comma before three digits separates thousands; the point is decimal.
"""

from __future__ import annotations

import re
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
        assert verdict in ("+", "-"), line
        found.append(Pair(grader, _printed(response), _printed(truth), verdict == "+", reason))
    return found


def _printed(field: str) -> str:
    """The text that the field stands for: ``↵`` is a line's end, ``<U+2212>`` a sign that looks like another here."""
    return re.sub(r"<U\+([0-9A-F]{4})>", lambda code: chr(int(code[1], 16)), field.replace("↵", "\n"))


# --- what a careless reading calls right ---

LETTER_CASE = pairs(
    "boxed",
    r"""
- 0 ;; R-r ;; two radii do not cancel
- \pi(r^2-R^2) ;; \pi(R^2-r^2) ;; the ring turned inside out
- 2r ;; R+r ;; two radii are not twice one
- 2R ;; R+r ;; two radii are not twice the other
- 1 ;; \frac{R}{r} ;; two radii do not cancel
- 0 ;; A-a ;; a capital is another letter
- 2mg ;; (M+m)g ;; two masses are not twice one
- \frac{Gm^2}{r^2} ;; \frac{GMm}{r^2} ;; two masses are not one squared
- A^2 ;; Aa ;; a capital is another letter
- 2x+2y ;; X+x+Y+y ;; capitals are other letters
- 0 ;; T-t ;; two times do not cancel
- 1 ;; \frac{B+b}{b+b} ;; a base of a trapezoid is not the other
- bh ;; \frac{(B+b)h}{2} ;; two bases are not twice one
- \frac{b}{B} ;; \frac{B}{b} ;; turned over
- (a,A) ;; (A,a) ;; swapped, as the letters differ
- \{K\} ;; \{k,K\} ;; two letters are two elements
- R<r ;; r<R ;; the other radius is the larger
- y=Mx+b ;; y=mx+b ;; another slope
- \log_B A ;; \log_b a ;; other letters
- 2^N ;; 2^n ;; another exponent
- N+1 ;; n+1 ;; another letter
- 1 ;; \frac{V+v}{2v} ;; speeds that differ do not cancel
- 0 ;; 2C-2c ;; a capital is another letter
- (p+q)^2 ;; (P+q)(p+Q) ;; capitals are other letters
- x^2+y^2=R^2 ;; x^2+y^2=r^2 ;; the circle with the other radius
- \delta t ;; \Delta t ;; a small delta is no capital one
- \omega ;; \Omega ;; a small omega is no capital one
- \theta ;; \Theta ;; a small theta is no capital one
- 1 ;; \frac{\Phi}{\phi} ;; a small phi is no capital one
- 2\sigma ;; \sigma+\Sigma ;; a small sigma is no capital one
- 0 ;; \sqrt{R^2-r^2} ;; two radii do not cancel
- \sqrt{r^2-R^2} ;; \sqrt{R^2-r^2} ;; the wrong radius is the larger
- \frac{r}{2} ;; \frac{Rr}{R+r} ;; the parallel of two resistances that differ
+ R-r ;; R-r ;; the same
+ -r+R ;; R-r ;; terms commute
+ \pi(R-r)(R+r) ;; \pi(R^2-r^2) ;; factored
+ (R+r)^2 ;; R^2+2Rr+r^2 ;; factored
+ \frac{r-R}{-R-r} ;; \frac{R-r}{R+r} ;; both signs turned
+ Mm ;; mM ;; factors commute
+ 2N+2n ;; 2(n+N) ;; expanded
+ A\cdot a ;; aA ;; factors commute
+ \frac{1}{\frac{1}{R}+\frac{1}{r}} ;; \frac{Rr}{R+r} ;; a fraction in a fraction
+ (M+m)g ;; Mg+mg ;; factored
+ \Delta t ;; \Delta t ;; the same
+ \frac{1}{2}(B+b)h ;; \frac{Bh+bh}{2} ;; expanded
""",
)

UPRIGHT = pairs(
    "boxed",
    r"""
- -4 ;; 1-5\mathrm{i} ;; upright i is the imaginary unit, not a unit
- 5 ;; 2+3\mathrm{i} ;; upright i is the imaginary unit, not a unit
- 2 ;; 2\mathrm{e} ;; upright e is Euler's number, not a unit
- 3\mathbf{i}+4 ;; 3\mathbf{i}+4\mathbf{j} ;; a vector is not to be dropped
- 7 ;; 7\mathrm{i} ;; imaginary
- 0 ;; 3-3\mathrm{i} ;; imaginary
- 6 ;; 6\mathrm{e} ;; e is left out
- 4 ;; 4\mathrm{e}^{2} ;; e squared is left out
- 4^2 ;; 4\mathrm{e}^2 ;; the exponent is of e
- 1 ;; \mathrm{e} ;; e is no one
- 1 ;; \mathrm{i} ;; i is no one
- 5\mathrm{i} ;; 5 ;; the truth is real
- 2\mathrm{e} ;; 2 ;; the truth has no e
- 5\mathbf{i} ;; 5 ;; a vector is no number
- 3 ;; 3\mathbf{k} ;; a number is no vector
- 2 ;; 2\mathbf{a} ;; a number is no vector
- 2\mathbf{b} ;; 2\mathbf{a} ;; another vector
- 5\mathbf{i}-2\mathbf{j} ;; 5\mathbf{i}+2\mathbf{j} ;; the other sign of a component
- 3 ;; 5\mathbf{i}-2\mathbf{j} ;; components do not add
- 4\mathbf{i}+3\mathbf{j} ;; 3\mathbf{i}+4\mathbf{j} ;; components swapped
- 2 ;; 2\vec{a} ;; a number is no vector
- \vec{a} ;; \vec{b} ;; another vector
- \vec{a}+\vec{b} ;; \vec{a}-\vec{b} ;; another sign
- 4 ;; 4\mathbf{I} ;; a number is no matrix
- 2 ;; 2\mathit{x} ;; an italic letter is a variable
- 9 ;; 9\boldsymbol{u} ;; a number is no vector
- 12 ;; 12\mathrm{x} ;; no unit is called x
- 5 ;; 5\mathcal{F} ;; a letter of a script is no unit
- 3 ;; 3\mathbb{Z} ;; three is not its multiples
- 5\mathrm{i} ;; 5\mathrm{cm} ;; i is not the unit
- 5\mathrm{kg} ;; 5\mathrm{g} ;; a wrong unit
- 7\mathrm{km} ;; 7\mathrm{m} ;; a wrong unit
- 1+\mathrm{i} ;; 1-\mathrm{i} ;; conjugate
- \mathrm{e}^{2} ;; \mathrm{e}^{3} ;; another power
+ 1-5\mathrm{i} ;; 1-5i ;; upright i is i
+ 2e^2 ;; 2\mathrm{e}^2 ;; upright e is e
+ \mathrm{i} ;; i ;; upright i is i
+ \frac{4}{e} ;; 4\mathrm{e}^{-1} ;; upright e is e
+ \mathrm{e}^{2}-1 ;; e^2-1 ;; upright e is e
+ \mathrm{e}^{\mathrm{i}\pi} ;; -1 ;; Euler, in upright letters
+ \frac{1+\mathrm{i}}{2} ;; \frac12+\frac12 i ;; equal complex numbers
+ 2+\mathrm{i}\sqrt{3} ;; 2+i\sqrt3 ;; upright i before a root
+ 3\mathbf{i}+4\mathbf{j} ;; 3\mathbf{i}+4\mathbf{j} ;; the same
+ 4\mathbf{j}+3\mathbf{i} ;; 3\mathbf{i}+4\mathbf{j} ;; terms commute
+ \mathbf{b}-2\mathbf{a} ;; -2\mathbf{a}+\mathbf{b} ;; terms commute
+ \vec{b}+\vec{a} ;; \vec{a}+\vec{b} ;; terms commute
+ 2x ;; 2\mathit{x} ;; variables are italic
+ 7\,\mathrm{cm} ;; 7 ;; cm is a unit
+ 7 ;; 7\,\mathrm{cm} ;; a missing unit is forgiven
+ 12\,\mathrm{km/h} ;; 12 ;; a unit with a slash
+ 9.8 ;; 9.8\,\mathrm{m/s^2} ;; a unit with a power
+ 5\,\mathrm{kg} ;; 5\text{ kg} ;; the same unit
""",
)

BOXES = pairs(
    "strict",
    r"""
- \(\boxed{1}\) and \(\boxed{-2}\) ;; -2 ;; two boxes joined by and are one answer
- $\boxed{1} \quad \text{and} \quad \boxed{-2}$ ;; -2 ;; two boxes joined by and are one answer
- \boxed{-2} ;; \(\boxed{1}\) and \(\boxed{-2}\) ;; half of the truth
- \boxed{-2} ;; $\boxed{1} \quad \text{and} \quad \boxed{-2}$ ;; half of the truth
- \[\boxed{4}\] or \[\boxed{6}\] ;; 6 ;; two displays joined by or
- \boxed{3}, \boxed{5} ;; 5 ;; two boxes joined by a comma
- \boxed{3},\ \boxed{5} ;; 5 ;; a comma and TeX's space
- $\boxed{3},\;\boxed{5}$ ;; 5 ;; a comma and TeX's thick space
- $$\boxed{2}\;\text{or}\;\boxed{7}$$ ;; 7 ;; or between thick spaces
- **\boxed{2}** and **\boxed{9}** ;; 9 ;; bold boxes
- \boxed{1}, \boxed{2}, and \boxed{3} ;; 3 ;; a list of three
- \boxed{1}, \boxed{2} and \boxed{3} ;; 2,3 ;; two of three
- $\boxed{5}\ \mbox{or}\ \boxed{8}$ ;; 8 ;; or in TeX's other text
- \boxed{7} and↵\boxed{8} ;; 8 ;; and at the line's end
- \(\boxed{(1,2)}\) and \(\boxed{(3,4)}\) ;; (3,4) ;; one of two points
- \fbox{2} and \fbox{3} ;; 3 ;; the other box
- $x=\boxed{2}$ or $x=\boxed{-3}$ ;; -3 ;; the name between them changes nothing
- $\boxed{\frac12}\quad\mathrm{or}\quad\boxed{\frac13}$ ;; \frac13 ;; or in upright letters
- \boxed{1}\) \textbf{and} \(\boxed{4} ;; 4 ;; and in bold
- \(\boxed{10}\), \(\boxed{20}\), or \(\boxed{30}\) ;; 30 ;; hedged among three
- Either $\boxed{12}$ or $\boxed{15}$. ;; 12 ;; hedged among two
- \boxed{-2} ;; The roots are $\boxed{5}$ or $\boxed{-2}$. ;; half of the truth
- We first find \boxed{8} for the area. The perimeter is \boxed{12}. ;; 8 ;; the last box counts
- We first find \boxed{8} for the area. The perimeter is \boxed{12}. ;; 8,12 ;; a sentence joins no boxes
+ \(\boxed{1}\) and \(\boxed{-2}\) ;; 1,-2 ;; boxes joined by and are one answer
+ $\boxed{1} \quad \text{and} \quad \boxed{-2}$ ;; 1,-2 ;; boxes joined by and are one answer
+ \boxed{-2, 1} ;; \(\boxed{1}\) and \(\boxed{-2}\) ;; the truth's boxes are one answer
+ \(\boxed{-2}\) and \(\boxed{1}\) ;; $\boxed{1} \quad \text{and} \quad \boxed{-2}$ ;; a list has no order
+ \[\boxed{4}\] or \[\boxed{6}\] ;; 4,6 ;; two displays joined by or
+ \boxed{3}, \boxed{5} ;; 3,5 ;; boxes joined by a comma
+ $$\boxed{2}\;\text{or}\;\boxed{7}$$ ;; 2,7 ;; or between thick spaces
+ \boxed{1}, \boxed{2}, and \boxed{3} ;; 1,2,3 ;; a list of three
+ $\boxed{x=1}$ and $\boxed{x=4}$ ;; 1,4 ;; names within the boxes
+ \(\boxed{(1,2)}\) and \(\boxed{(3,4)}\) ;; (1,2),(3,4) ;; both points
+ $x=\boxed{2}$ or $x=\boxed{-3}$ ;; 2,-3 ;; the name between them changes nothing
+ \fbox{2} and \fbox{3} ;; 2,3 ;; the other box
+ We first find \boxed{8} for the area. The perimeter is \boxed{12}. ;; 12 ;; the last box counts
""",
)

CUT_OUT = pairs(
    "flexible",
    r"""
- We get \sqrt{2} ;; 2 ;; what is under the root is not the root
- So n = 2^{10} ;; 10 ;; the exponent is not the power
- So n = 2^{10} ;; 2 ;; the base is not the power
- So n=\frac{3}{4} ;; 4 ;; the denominator is not the fraction
- So n=\frac{3}{4} ;; 3 ;; the numerator is not the fraction
- The value is 3x ;; 3 ;; a coefficient is not the term
- n = 1.5e3 ;; 3 ;; the power of ten is not the number
- n = 1.5e3 ;; 1.5 ;; the digits before the power are not the number
- Hence the side is 3\sqrt{5} ;; 5 ;; what is under the root is not the value
- Hence the side is 3\sqrt{5} ;; 3 ;; the factor is not the value
- So the area is 9\pi ;; 9 ;; pi is a factor
- So the area is 9π ;; 9 ;; pi is a factor, as a letter too
- So the side is 4√7 ;; 7 ;; a root sign before the number
- So the side is 4√7 ;; 4 ;; a root sign behind the number
- It equals 2^5 ;; 5 ;; the exponent is not the power
- It equals 2^{-3} ;; -3 ;; the exponent is not the power
- It equals 7² ;; 7 ;; the base is not the power
- We obtain \frac{7}{9} ;; 9 ;; the denominator is not the fraction
- We obtain \dfrac79 ;; 79 ;; two digits of a fraction are no number
- The number of ways is \binom{6}{2} ;; 2 ;; a part of a binomial
- The number of ways is 5! ;; 5 ;; the factorial is left out
- So we take a_7 ;; 7 ;; an index is no value
- So the total is 4n+6 ;; 6 ;; a summand is not the sum
- So we have x^2 ;; 2 ;; the exponent is not the power
- It is \log_2 9 ;; 9 ;; what the logarithm is of
- This gives |x-3| ;; 3 ;; a part of a difference
- So the result is 6.02 \times 10^{23} ;; 23 ;; the exponent is not the number
- So the result is 6 * 10^5 ;; 5 ;; the exponent is not the number
- So n = 10**6 ;; 6 ;; the exponent is not the number
- So the result is 3 + 4i ;; 4 ;; a coefficient is not the number
- So the result is 3 + 4i ;; 3 ;; the real part is not the number
- So y = 2x + 1 ;; 1 ;; a summand is not the sum
- In base two we find 1011_2 ;; 2 ;; a base is no value
- It is \sqrt[3]{4} ;; 4 ;; what is under the root is not the root
- So the value is e^{3} ;; 3 ;; the exponent is not the power
- They meet at 3:45 ;; 45 ;; minutes are not the time
- So x lies in [2,5] ;; 5 ;; an end is no interval
- So x lies in (2,5) ;; 2 ;; an end is no interval
- So the set is \{1,2,8\} ;; 8 ;; an element is not the set
- So the point is (3, 7) ;; 7 ;; a coordinate is not the point
- So n > 12 ;; 12 ;; a bound is no value
- So n \ge 12 ;; 12 ;; a bound is no value
- We get 3/x ;; 3 ;; the numerator is not the fraction
- So p = 0.\overline{27} ;; 27 ;; the period is not the decimal
- So p = 0.\overline{27} ;; 0 ;; the whole part is not the decimal
- So it is \sin 60^\circ ;; 60 ;; an angle is not its sine
- So f(x) = 5x^2 ;; 5 ;; a coefficient is not the function
- we get $ \frac{1}{2} $ ;; 2 ;; the denominator is not the fraction
- <answer>\frac{1}{2}</answer> ;; 2 ;; the denominator is not the fraction
- <answer>3\sqrt{2}</answer> ;; 2 ;; what is under the root is not the value
- <answer>3 or 4</answer> ;; 4 ;; hedged
- <answer>5</answer> ;; 6 ;; another number
+ <answer>\frac{1}{2}</answer> ;; 1/2 ;; tagged
+ we get $ \frac{1}{2} $ ;; 1/2 ;; a formula with spaces inside the dollars
+ <answer>12</answer> ;; 12 ;; tagged
+ <answer> \sqrt{3} </answer> ;; \sqrt{3} ;; tagged, with spaces
+ <answer>$\frac{2}{3}$</answer> ;; \frac{2}{3} ;; tagged and in dollars
+ <answer>-4</answer> ;; -4 ;; tagged, with a sign
+ <think>It may be 3.</think>↵<answer>x+1</answer> ;; x+1 ;; tagged behind a thought
+ so we get $ 7 $ ;; 7 ;; spaces inside the dollars
+ so it must be $ x + 1 $ ;; x+1 ;; spaces inside the dollars
+ Hence it is \( \frac{5}{6} \) ;; \frac56 ;; spaces inside the parentheses
+ We get \[ 3\sqrt{5} \] ;; 3\sqrt{5} ;; a display
+ Hence the side is $3\sqrt{5}$ ;; 3\sqrt{5} ;; a formula
+ We get \sqrt{2} ;; \sqrt{2} ;; a formula that lost its dollars
+ So n=\frac{3}{4} ;; \frac34 ;; a formula that lost its dollars
+ n = 1.5e3 ;; 1500 ;; the whole number
""",
)

CHARACTERS = (
    pairs(
        "boxed",
        r"""
- <U+2212>5 ;; 5 ;; a minus sign is a sign
- <U+2010>7 ;; 7 ;; a hyphen is a sign
- <U+2011>7 ;; 7 ;; a hyphen that does not break is a sign
- <U+2012>7 ;; 7 ;; a figure dash is a sign
- <U+2013>7 ;; 7 ;; an en dash is a sign
- <U+2014>7 ;; 7 ;; an em dash is a sign
- <U+2015>7 ;; 7 ;; a horizontal bar is a sign
- <U+FE63>7 ;; 7 ;; a small minus is a sign
- <U+FF0D>7 ;; 7 ;; a wide minus is a sign
- 8 ;; <U+2212>8 ;; the truth's minus is a sign
- 8 ;; <U+FF0D>8 ;; the truth's wide minus is a sign
- ２３ ;; 2 ;; wide digits are digits
- ２３ ;; 32 ;; wide digits have an order
- √2 ;; 2 ;; a root sign is no ornament
- √16 ;; 16 ;; a root sign is no ornament
- 2√3 ;; 6 ;; a root sign is no ornament
- −∞ ;; \infty ;; a minus sign is a sign
- 10⁻³ ;; 7 ;; a raised minus and digit are an exponent
- 10⁻³ ;; 1000 ;; a raised minus is a sign
- 2² ;; 22 ;; a raised digit is no digit
- 2⁶ ;; 26 ;; a raised digit is no digit
- 2ⁿ ;; 2n ;; a raised letter is no factor
- 1½ ;; \frac{11}{2} ;; a mixed number, not eleven halves
- ½ ;; 1 ;; a half is not its numerator
- ¾ ;; 4 ;; not its denominator
- 3×4 ;; 12 ;; arithmetic left undone restates the question
- x − 1 ;; x+1 ;; a minus sign is a sign
- 3π ;; 3 ;; pi is a factor
- x≥3 ;; x≤3 ;; the other side
- 10<U+202F>000 ;; 10 ;; a narrow space separates thousands
- 5° ;; 5% ;; degrees are no percent
+ <U+2212>12 ;; -12 ;; a minus sign
+ <U+2010>7 ;; -7 ;; a hyphen as sign
+ <U+2011>7 ;; -7 ;; a hyphen that does not break
+ <U+2012>7 ;; -7 ;; a figure dash as sign
+ <U+2013>7 ;; -7 ;; an en dash as sign
+ <U+2014>7 ;; -7 ;; an em dash as sign
+ <U+2015>7 ;; -7 ;; a horizontal bar as sign
+ <U+FE63>7 ;; -7 ;; a small minus
+ <U+FF0D>7 ;; -7 ;; a wide minus
+ -8 ;; <U+2212>8 ;; the truth has a minus sign
+ x<U+2212>1 ;; x-1 ;; a minus sign between terms
+ １２ ;; 12 ;; wide digits
+ 42 ;; ４２ ;; wide digits in the truth
+ ３．５ ;; 3.5 ;; a wide point
+ １，０００ ;; 1000 ;; a wide comma before three digits
+ 10<U+202F>000 ;; 10000 ;; a narrow space separates thousands
+ 10<U+2009>000 ;; 10000 ;; a thin space separates thousands
+ 10<U+00A0>000 ;; 10000 ;; a space that does not break separates thousands
+ 5<U+00A0>cm ;; 5 ;; a space before a unit
+ x<U+2009>+<U+2009>1 ;; x+1 ;; thin spaces mean nothing
+ 50％ ;; 50\% ;; a wide percent sign
+ √2 ;; \sqrt{2} ;; a root sign
+ 2√3 ;; \sqrt{12} ;; a root sign behind a factor
+ √(x+1) ;; \sqrt{x+1} ;; a root sign before brackets
+ 10⁻³ ;; 0.001 ;; a raised minus
+ x² + y² ;; x^2+y^2 ;; raised digits
+ 3 × 10⁵ ;; 300000 ;; scientific notation in print
+ x ÷ 2 ;; \frac{x}{2} ;; a division of a letter is a fraction
+ ¾ ;; \frac34 ;; one sign for three quarters
+ 1½ ;; 1.5 ;; a mixed number in print
+ (−∞, 3) ;; (-\infty,3) ;; the signs of print
+ 90° ;; 90 ;; degrees are a unit
+ x ≤ 3 ;; (-\infty,3] ;; the sign of print
+ {1, 2} ;; \{1,2\} ;; plain braces are a set
""",
    )
    + pairs(
        "flexible",
        r"""
- so x is <U+2212>5 ;; 5 ;; a minus sign is a sign
- so x is <U+2013>12 ;; 12 ;; an en dash before the number is a sign
- so x is <U+2011>12 ;; 12 ;; a hyphen before the number is a sign
- so x is <U+2012>12 ;; 12 ;; a figure dash before the number is a sign
- so x is <U+FF0D>３ ;; 3 ;; a wide minus is a sign
- The answer is <U+2212>6. ;; 6 ;; a minus sign is a sign
- so x is ３７ ;; 7 ;; wide digits are digits
- so we need 10<U+202F>000 ;; 0 ;; a narrow space separates thousands
- so we need 12<U+00A0>500 ;; 500 ;; such a space separates thousands
+ so x is <U+2212>5 ;; -5 ;; a minus sign
+ so x is <U+FE63>9 ;; -9 ;; a small minus
+ The answer is <U+2212>6. ;; -6 ;; a minus sign
+ so x is ３７ ;; 37 ;; wide digits
+ so we need 12<U+202F>500 ;; 12500 ;; a narrow space separates thousands
""",
    )
    + pairs(
        "gsm8k strict",
        r"""
- #### <U+2212>5 ;; 5 ;; a minus sign is a sign
- #### 5 ;; <U+2212>5 ;; the truth's minus is a sign
- #### <U+2013>40 ;; 40 ;; an en dash is a sign
- #### <U+FF0D>４０ ;; 40 ;; a wide minus is a sign
- #### １２ ;; 1 ;; wide digits are digits
- #### 10<U+202F>000 ;; 10 ;; a narrow space separates thousands
- #### 10<U+00A0>000 ;; 10 ;; such a space separates thousands
- #### 10 000 ;; 10 ;; the number goes on behind the space
+ #### <U+2212>5 ;; -5 ;; a minus sign
+ #### -5 ;; <U+2212>5 ;; the truth has a minus sign
+ #### <U+2010>40 ;; -40 ;; a hyphen as sign
+ #### <U+FF0D>４０ ;; -40 ;; a wide minus and wide digits
+ #### １２ ;; 12 ;; wide digits
+ #### 18 ;; １８ ;; wide digits in the truth
+ #### 10<U+202F>000 ;; 10000 ;; a narrow space separates thousands
+ #### 10<U+2009>000 ;; 10000 ;; a thin space separates thousands
""",
    )
    + pairs(
        "gsm8k flexible",
        r"""
- so x is <U+2212>5 ;; 5 ;; a minus sign is a sign
- so x is <U+2012>31 ;; 31 ;; a figure dash is a sign
- so x is 5 ;; <U+2212>5 ;; the truth's minus is a sign
- It takes 3<U+2013>5 days ;; -5 ;; a dash between numbers is no sign
- He has 10<U+2212>3 left ;; -3 ;; a subtraction
+ so x is <U+2212>5 ;; -5 ;; a minus sign
+ so x is <U+2015>31 ;; -31 ;; a horizontal bar as sign
+ so x is -5 ;; <U+2212>5 ;; the truth has a minus sign
+ that is ５０ in all ;; 50 ;; wide digits
+ that is 25<U+00A0>000 in all ;; 25000 ;; such a space separates thousands
""",
    )
)

NEARLY = pairs(
    "boxed",
    r"""
- 2^{1/2^{1000}} ;; 1 ;; more than 1, if by little
- 2^{2^{-100}} ;; 1 ;; more than 1, if by little
- 3^{1/10^{30}} ;; 1 ;; more than 1, if by little
- 1+2^{-1000} ;; 1 ;; more than 1, if by little
- 1 ;; 2^{1/2^{1000}} ;; less than it, if by little
- 1 ;; 1+10^{-40} ;; less than it, if by little
- 1-2^{-200} ;; 1 ;; less than 1, if by little
- \cos(10^{-20}) ;; 1 ;; less than 1, if by little
- e^{10^{-25}} ;; 1 ;; more than 1, if by little
- \frac{10^{30}+1}{10^{30}} ;; 1 ;; more than 1, if by little
- 10^{-50} ;; 0 ;; not zero
- \frac{1}{10^{40}} ;; 0 ;; not zero
- \sin(10^{-30}) ;; 0 ;; not zero
- e^{-1000} ;; 0 ;; no power is zero
- 0 ;; e^{-1000} ;; no power is zero
- 2^{1000}+1 ;; 2^{1000} ;; one more
- \sqrt{10^{40}+1} ;; 10^{20} ;; a little more
- \pi+10^{-30} ;; \pi ;; a little more
- 0.99999999999999999999 ;; 1 ;; a little less
- 1.00000000000000000001 ;; 1 ;; a little more
- e^{\pi\sqrt{163}} ;; 262537412640768744 ;; Ramanujan's constant is no whole number
- \sqrt{2}+\sqrt{3} ;; \pi ;; near, but another
- \frac{355}{113} ;; \pi ;; an approximation is not the number
- \sqrt[4]{9^2+\frac{19^2}{22}} ;; \pi ;; Ramanujan's approximation is not the number
- \frac{10^{25}}{10^{25}+1} ;; 1 ;; a little less
- x+10^{-30} ;; x ;; a little more
- (1+10^{-30})x ;; x ;; another coefficient
+ 0.\overline{9} ;; 1 ;; a repeating decimal is exact
+ (2^{1/2})^2 ;; 2 ;; a law of powers
+ \sqrt{10^{40}} ;; 10^{20} ;; a root
+ 10^{-3} ;; 0.001 ;; equal values
+ 2^{-1000} ;; \frac{1}{2^{1000}} ;; a negative power
""",
)

WORDS_WITH_DIGITS = (
    pairs(
        "boxed",
        r"""
- AZYUK2A ;; 2 ;; a digit in a word is no number
- \text{AZYUK2A} ;; 2 ;; a digit in a word is no number
- 2 ;; AZYUK2A ;; a number is no word
- AZYUK3A ;; AZYUK2A ;; another word
- R2D2 ;; 2 ;; a name
- B12 ;; 12 ;; a name
- \text{H2O} ;; 2 ;; a formula of chemistry
- COVID19 ;; 19 ;; a name
- abc123 ;; 123 ;; a password
- \text{Q4} ;; 4 ;; a name
- 7up ;; 7 ;; a name
- \text{MP3} ;; 3 ;; a name
- W8tr ;; 8 ;; a digit in a word is no number
- \text{4ever} ;; 4 ;; a digit in a word is no number
+ AZYUK2A ;; AZYUK2A ;; the same word
+ \text{AZYUK2A} ;; AZYUK2A ;; the same word
+ \text{R2D2} ;; \text{R2D2} ;; the same name
""",
    )
    + pairs(
        "flexible",
        r"""
- The answer is AZYUK2A. ;; 2 ;; a digit in a word is no number
- I would say AZYUK2A ;; 2 ;; a digit in a word is no number
- The code is X7 ;; 7 ;; a digit in a word is no number
- It is printed as a14b ;; 14 ;; a digit in a word is no number
- Take vitamin B12 ;; 12 ;; a name
""",
    )
    + pairs(
        "gsm8k strict",
        r"""
- #### A5 ;; 5 ;; a digit in a word is no number
- #### AZYUK2A ;; 2 ;; a digit in a word is no number
- #### 2AZYUK ;; 2 ;; a digit in a word is no number
""",
    )
    + pairs(
        "gsm8k flexible",
        r"""
- He sits in room B12 ;; 12 ;; a name
- It was AZYUK2A ;; 2 ;; a digit in a word is no number
- He sings in U2 ;; 2 ;; a name
""",
    )
)

# Each of these, or its like, once stopped the grader with an error, so that the sample was left out instead of wrong.
NONSENSE = pairs(
    "boxed",
    r"""
- \approx ;; 5 ;; a sign without sides
- ≈ ;; 5 ;; a sign without sides
- 1,≈ ;; 1 ;; a sign without sides in a list
- 1,\approx ;; 1,2 ;; a sign without sides in a list
- (\approx, 2) ;; (1,2) ;; a sign without sides in a point
- \approx\approx ;; 2 ;; two signs without sides
- = ;; 5 ;; a sign without sides
- == ;; 5 ;; two signs without sides
- < ;; x<5 ;; a sign without sides
- x< ;; x<5 ;; a side is missing
- \le\ge ;; 5 ;; two signs without sides
- \pm ;; \pm 5 ;; a sign without a number
- \cup ;; (1,2)\cup(3,4) ;; a sign without sides
- (1,2)\cup ;; (1,2) ;; a side is missing
- \in ;; 5 ;; a sign without sides
- x\in ;; 5 ;; a side is missing
- x= ;; 5 ;; a side is missing
- , ;; 1,2 ;; a comma alone
- ;, ;; 5 ;; punctuation alone
- ,,, ;; 0,0 ;; commas alone
- \% ;; 5 ;; a sign without a number
- ° ;; 5 ;; a sign without a number
- \$ ;; 5 ;; a sign without a number
- ^ ;; 5 ;; a sign without base and exponent
- _ ;; 5 ;; a sign without a letter
- \sqrt ;; \sqrt{5} ;; a root of nothing
- \sqrt{} ;; 0 ;; a root of nothing
- \frac ;; \frac12 ;; a fraction of nothing
- \frac{}{} ;; 1 ;; a fraction of nothing
- \frac{1}{} ;; 1 ;; the denominator is missing
- () ;; (1,2) ;; empty brackets
- [] ;; [1,2] ;; empty brackets
- (,) ;; (0,0) ;; a point without coordinates
- || ;; 0 ;; bars around nothing
- \text{} ;; 5 ;; a text without letters
- \left(\right) ;; 0 ;; empty brackets
- \begin{pmatrix}\end{pmatrix} ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; a matrix without entries
- \begin{pmatrix} & \\ & \end{pmatrix} ;; \begin{pmatrix} 0 & 0 \\ 0 & 0 \end{pmatrix} ;; a matrix without entries
- \end{pmatrix} ;; 5 ;; an end without a beginning
- \overline{} ;; 0 ;; a line over nothing
- 0.\overline{} ;; 0 ;; a period without digits
- \log_{} ;; 0 ;; a logarithm of nothing
- \binom{5}{} ;; 5 ;; half a binomial
- ! ;; 1 ;; a factorial of nothing
- -- ;; 0 ;; signs alone
- 1//2 ;; \frac12 ;; two slashes
- \frac{0}{0} ;; 0 ;; undefined
- 0^{-1} ;; 0 ;; undefined
- \infty-\infty ;; 0 ;; undefined
- \frac{\infty}{\infty} ;; 1 ;; undefined
- \log 0 ;; 0 ;; undefined
- \tan 90^\circ ;; 0 ;; undefined
- \frac{5}{1-1} ;; 5 ;; undefined
- \sum ;; 0 ;; a sum of nothing
- \int ;; 0 ;; an integral of nothing
- \lim_{x\to} ;; 0 ;; a limit of nothing
- \mathbb{} ;; \mathbb{R} ;; a letter is missing
- \{\mid\} ;; \emptyset ;; a set of no description
- \equiv \pmod ;; 3 ;; a congruence of nothing
- \ne ;; x\ne 5 ;; a sign without sides
- \right) ;; 5 ;; a bracket that was never opened
- \\ ;; 5 ;; a line break
- 5\ne ;; 5 ;; a side is missing
- \pm\mp\pm ;; 0 ;; signs alone
- \cdot ;; 0 ;; a sign without factors
""",
) + pairs(
    "flexible",
    r"""
- The answer is $\approx$ ;; 5 ;; a sign without sides
- The answer is $=$. ;; 5 ;; a sign without sides
- The answer is ≈ ;; 5 ;; a sign without sides
- The answer is $\frac{}{}$ ;; 1 ;; a fraction of nothing
- The answer is $$ ;; 5 ;; dollars around nothing
- The answer is <answer></answer> ;; 0 ;; a tag around nothing
""",
)

# --- each kind of answer, right and wrong ---

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
+ x = 1, y = 2 ;; (1,2) ;; coordinates with their names
+ 100,200,300 ;; 100, 200, 300 ;; the same text but for spaces
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

# --- what a strict reading calls wrong ---

LETTERS = pairs(
    "boxed",
    r"""
+ \text{C} ;; \text{(C)} ;; brackets around a letter
+ C ;; \text{C} ;; a letter in text or not
+ E ;; \text{E} ;; a letter, not Euler's number
+ \textbf{(D)} ;; D ;; bold and in brackets
+ (B) ;; \text{B} ;; brackets around a letter
+ \mathrm{(A)} ;; A ;; upright and in brackets
+ \text{(E)} ;; \textbf{E} ;; brackets around a letter, the truth in bold
+ \textbf{B} ;; \text{(B)} ;; bold or not
+ \text{A} ;; (A) ;; brackets around a letter
+ (A) ;; \text{A} ;; brackets around a letter
+ \text{D.} ;; D ;; a full stop in the text
+ (E) ;; E ;; brackets around a letter
+ I ;; \text{(I)} ;; a letter, not the imaginary unit
+ \mathbf{(C)} ;; \mathbf{C} ;; bold both
+ \text{ (F) } ;; F ;; spaces in the text
+ \textbf{(A)}\ 12 ;; \textbf{(A)}\ 12 ;; with the option's value
- D ;; \text{(C)} ;; another letter
- \text{(D)} ;; \textbf{(E)} ;; another letter
- \textbf{(A)}\ 12 ;; \textbf{(B)}\ 12 ;; another letter with the same value
- \text{(B) or (C)} ;; \text{(C)} ;; two letters are no choice
- \text{(B)},\text{(C)} ;; \text{(C)} ;; two letters are no choice
- \text{(A)(B)(C)(D)(E)} ;; \text{(C)} ;; naming everything is no answer
- 3 ;; \text{(C)} ;; a number is no letter
- \text{ABC} ;; \text{C} ;; a word that ends in the letter
- AB ;; \text{(A)} ;; two letters are no choice
- \text{not C} ;; \text{C} ;; denied
- 2.71828 ;; \text{E} ;; the letter is no number
- \text{II} ;; \text{(I)} ;; another numeral
- () ;; \text{(C)} ;; brackets without a letter
- \text{(C)} ;; \text{(CD)} ;; one of two letters
""",
)

POWERS = pairs(
    "boxed",
    r"""
+ 2^{6}3^{5} ;; 2^6\cdot 3^5 ;; powers side by side are a product
+ 2^{3}5^{2} ;; 2^3 \cdot 5^2 ;; powers side by side are a product
+ 3^4 7^2 ;; 3^4 \cdot 7^2 ;; with a space between them
+ 2^{10}3^{2}5 ;; 2^{10}\cdot 3^2\cdot 5 ;; a number behind two powers
+ 2^3\times 3^2 ;; 2^3 3^2 ;; the truth's stand side by side
+ 2^{4}11^{3} ;; 11^3\cdot 2^4 ;; factors commute
+ x^{2}y^{3} ;; x^2\cdot y^3 ;; powers of letters
+ 5^{12}2^{7} ;; 2^7 5^{12} ;; factors commute
+ 10^{3}2^{n} ;; 2^n\cdot 10^3 ;; an exponent may be a letter
+ 2^{n}3^{n} ;; 6^n ;; a law of powers
+ 2^33^2 ;; 2^3\cdot 3^2 ;; TeX raises one digit alone
+ 3^{20}7^{20} ;; 21^{20} ;; a law of powers
+ 2^{-3}5^{4} ;; \frac{5^4}{2^3} ;; a negative exponent
- 2^{6}3^{5} ;; 2^6+3^5 ;; a product is no sum
- 2^{5}3^{6} ;; 2^{6}3^{5} ;; exponents swapped
- 2^{6}3^{5} ;; 6^{11} ;; no law of powers
- 2^{6}3^{5} ;; 2^{6} ;; a factor too many
- 2^{6} ;; 2^{6}3^{5} ;; a factor is missing
- 2^{6}3^{5} ;; 5 ;; an exponent is not the number
- 2^{3}5 ;; 2^{35} ;; the factor is not in the exponent
- 2^{3}4 ;; 2^{34} ;; the factor is not in the exponent
- 2^33^2 ;; 2^{33^2} ;; TeX raises one digit alone
- 3^{2}7^{2} ;; 3^2\cdot 7^3 ;; another exponent
- x^{2}y^{3} ;; (xy)^5 ;; no law of powers
- 2^{4}3^{4} ;; 6^8 ;; exponents do not add here
- 2^{10}3 ;; 2^{13} ;; exponents do not take up a factor
""",
)

POINTS = pairs(
    "boxed",
    r"""
+ (x,y)=(3,4) ;; (3,4) ;; the names are optional
+ (3,4) ;; (x,y)=(3,4) ;; the names are optional
+ (x, y, z) = (1, 2, 3) ;; (1,2,3) ;; three names
+ (a,b)=(2,-5) ;; (2,-5) ;; other names
+ (m,n) = \left(\frac12,3\right) ;; (0.5,3) ;; equal coordinates
+ (r,\theta)=(2,\frac{\pi}{3}) ;; \left(2,\frac{\pi}{3}\right) ;; a Greek name
+ (p,q) = (7,11) ;; (p,q)=(7, 11) ;; names on both sides
+ \left(x,y\right)=\left(3,4\right) ;; (3,4) ;; left and right only stretch the brackets
+ (x_1,x_2)=(5,6) ;; (5,6) ;; names with indices
+ (h,k)=(-1,0) ;; (-1, 0) ;; a vertex
+ (a,b,c,d)=(1,2,3,4) ;; (1,2,3,4) ;; four names
- (x,y)=(4,3) ;; (3,4) ;; swapped
- (x,y)=(3,4,5) ;; (3,4) ;; another dimension
- (x,y)=(3,4) ;; 3 ;; a point is no number
- (x,y)=(3,4) ;; 4 ;; a point is no number
- (x,y)=(3,4) ;; 3,4 ;; a point is no list of solutions
- (a,b) ;; (3,4) ;; names are no values
- (x,y) ;; (x,y)=(3,4) ;; names are no values
- (x,y)=(3,-4) ;; (3,4) ;; another sign
- (x,y)=(3,4) ;; (x,y)=(3,5) ;; another coordinate
- (y,x)=(3,4) ;; (x,y)=(3,4) ;; the names are swapped
- (x,y)=(3,4),(4,3) ;; (3,4) ;; a point too many
- x=3 ;; (x,y)=(3,4) ;; half of it
- 7 ;; (x,y)=(3,4) ;; a sum is no point
""",
)

ALL_REALS = pairs(
    "boxed",
    r"""
+ \mathbb{R} ;; (-\infty,\infty) ;; the same set
+ (-\infty,\infty) ;; \mathbb{R} ;; the same set
+ (-\infty, +\infty) ;; \mathbb{R} ;; the plus is optional
+ x\in\mathbb{R} ;; (-\infty,\infty) ;; the set of x
+ \mathbb{R} ;; x \in \mathbb{R} ;; the set of x
+ -\infty<x<\infty ;; \mathbb{R} ;; the same set
+ x \in (-\infty,\infty) ;; \mathbb{R} ;; the same set
+ ℝ ;; \mathbb{R} ;; the sign of print
+ \text{all real numbers} ;; \mathbb{R} ;; the set in words
+ all real numbers ;; (-\infty,\infty) ;; the set in words
+ (-\infty,\infty) ;; \text{all real numbers} ;; the truth in words
+ \mathbb R ;; (-\infty,\infty) ;; braces are optional
- [0,\infty) ;; \mathbb{R} ;; half of it
- \mathbb{R} ;; (0,\infty) ;; twice too much
- (-\infty,0)\cup(0,\infty) ;; \mathbb{R} ;; 0 belongs to it
- \mathbb{R} ;; (-\infty,0)\cup(0,\infty) ;; 0 does not belong to it
- \mathbb{Z} ;; (-\infty,\infty) ;; whole numbers alone
- \mathbb{C} ;; \mathbb{R} ;; another set
- \mathbb{R}^2 ;; \mathbb{R} ;; the plane
- \infty ;; \mathbb{R} ;; infinity is no set
- \emptyset ;; \mathbb{R} ;; the empty set
- \mathbb{R}^+ ;; \mathbb{R} ;; positive numbers alone
- \text{no real numbers} ;; \mathbb{R} ;; the opposite
- \text{all integers} ;; \mathbb{R} ;; another set in words
- \mathbb{R} ;; 5 ;; naming everything is no answer
- \mathbb{N} ;; \mathbb{Z} ;; another set
""",
)

NEGATED = pairs(
    "boxed",
    r"""
+ -x>-1 ;; x<1 ;; both signs turned
+ -x\ge 2 ;; x\le -2 ;; both signs turned
+ -y<-5 ;; y>5 ;; both signs turned
+ 1>x ;; x<1 ;; turned round
+ -1<-x ;; x<1 ;; turned round, with both signs
+ -t\le -\frac12 ;; t\ge \frac12 ;; a fraction
+ -x<0 ;; x>0 ;; zero has no sign
+ 3\ge -x ;; x\ge -3 ;; turned round, with both signs
+ -x > -1 ;; (-\infty,1) ;; the set of x
+ -n>-10 ;; n<10 ;; another name
+ -a-b<-4 ;; a+b>4 ;; a sum with both signs turned
+ -x\le \sqrt{2} ;; x\ge -\sqrt{2} ;; a root
+ x<1 ;; -x>-1 ;; the truth has its signs turned
- -x>-1 ;; x>1 ;; the sign of order is to be turned too
- -x>-1 ;; x<-1 ;; the bound keeps its sign
- -x<-1 ;; x<1 ;; the other side
- -x\ge -1 ;; x<1 ;; 1 does not belong to it
- -x>-1 ;; x\le 1 ;; 1 belongs to it
- -x>1 ;; x<1 ;; another bound
- -y>-1 ;; x<1 ;; another variable
- -x>-2 ;; x<1 ;; another bound
- -x\le 2 ;; x\le -2 ;; the other side
- -x=-1 ;; x<1 ;; an equation is no inequality
- -x<0 ;; x<0 ;; the other side
- -a-b<4 ;; a+b>4 ;; another bound
- -1 ;; -x>-1 ;; a bound is no inequality
- -x>-1 ;; 1 ;; an inequality is no number
""",
)

DEGREES = pairs(
    "boxed",
    r"""
+ \frac{\sqrt3}{2} ;; \sin 60^\circ ;; the sine of sixty degrees
+ \sin 60^\circ ;; \frac{\sqrt3}{2} ;; the sine of sixty degrees
+ \sin 30^\circ ;; \frac12 ;; the sine of thirty degrees
+ \cos 60^{\circ} ;; \frac12 ;; the cosine of sixty degrees
+ \tan 45^\circ ;; 1 ;; the tangent of forty-five degrees
+ \sin(45^\circ) ;; \frac{\sqrt2}{2} ;; an angle in brackets
+ \cos 120^\circ ;; -\frac12 ;; an obtuse angle
+ \frac{\sqrt6+\sqrt2}{4} ;; \sin 75^\circ ;; the sum of 45 and 30 degrees
+ \tan 60^{\circ} ;; \sqrt3 ;; the tangent of sixty degrees
+ \cos 70^\circ ;; \sin 20^\circ ;; the angles add up to a right one
+ \cos 180° ;; -1 ;; the degree sign of print
+ \sin 150^\circ ;; \sin 30^\circ ;; the angles add up to a straight one
+ 2-\sqrt3 ;; \tan 15^\circ ;; half of thirty degrees
+ 1+\sqrt5 ;; 4\cos 36^\circ ;; the angle of the pentagon
+ \sin^2 30^\circ ;; \frac14 ;; the square of a sine
+ 10\sin 40^\circ ;; 10\sin(40^\circ) ;; brackets are optional
- \frac12 ;; \sin 60^\circ ;; the cosine
- \cos 60^\circ ;; \frac{\sqrt{3}}{2} ;; the sine
- \tan 45^\circ ;; -1 ;; another sign
- \sin 60^\circ ;; 60 ;; a sine is no angle
- 60 ;; \sin 60^\circ ;; an angle is no sine
- 60^\circ ;; \cos 60^\circ ;; an angle is no cosine
- 0.8660254 ;; \sin 60^\circ ;; an approximation is not the number
- \frac{\sqrt3}{3} ;; \tan 60^\circ ;; turned over
- \sin^2 30^\circ ;; \frac12 ;; the square is missed
- \frac{1+\sqrt5}{2} ;; \cos 36^\circ ;; twice too much
- \sin 210^\circ ;; \frac12 ;; another sign
- \cos 70^\circ ;; \sin 70^\circ ;; another function
- 10\sin 40^\circ ;; 10\cos 40^\circ ;; another function
- \sin 1^\circ ;; 1^\circ ;; near, but another
""",
)

PROSE = pairs(
    "flexible",
    r"""
+ Final Answer: The largest $n$ is 34. ;; 34 ;; a sentence behind the colon
+ The answer is 34</answer> ;; 34 ;; a tag behind it
+ The answer is therefore 34. ;; 34 ;; an adverb
+ Final answer: there are 12 such pairs. ;; 12 ;; a sentence behind the colon
+ The final answer is therefore $\frac{3}{8}$. ;; \frac38 ;; an adverb before a formula
+ The answer is thus 7. ;; 7 ;; an adverb
+ The answer is, therefore, 19. ;; 19 ;; an adverb between commas
+ Hence the answer is equal to 55. ;; 55 ;; equal to
+ The answer would be 16. ;; 16 ;; a conditional
+ **Final Answer**↵↵$29$ ;; 29 ;; a heading in bold
+ Answer: the area is 24 square units. ;; 24 ;; a sentence with a unit
+ Therefore the answer is: $x=3$. ;; 3 ;; a colon and a name
+ The answer is indeed 14. ;; 14 ;; an adverb
+ <think>Is it 3?</think>↵<answer>The value of $x$ is 5.</answer> ;; 5 ;; a sentence in the tag
+ Final Answer: 3/5</answer> ;; \frac35 ;; a tag behind it
+ The answer is **42**. ;; 42 ;; in bold
+ The correct answer is 21. ;; 21 ;; an adjective
+ Final Answer: The minimum of $f$ is $-\frac{1}{4}$. ;; -\frac14 ;; a formula in the sentence
+ So the answer is exactly 10. ;; 10 ;; an adverb
- The answer is therefore 34. ;; 35 ;; another number
- Final Answer: The largest $n$ is 34. ;; 3 ;; the first digit
- Final Answer: The largest $n$ is 34. ;; 4 ;; the last digit
- Final Answer: The largest $n$ is 34. ;; 43 ;; another number
- The answer is not 34. ;; 34 ;; denied
- The answer cannot be 12. ;; 12 ;; denied
- The answer is at least 34. ;; 34 ;; a bound is no value
- The answer is less than 10. ;; 10 ;; a bound is no value
- The answer is either 3 or 4. ;; 3 ;; hedged
- The answer is either 3 or 4. ;; 4 ;; hedged
- Final Answer: 7, 8 or 9. ;; 9 ;; hedged
- The answer is 1 in 6. ;; 6 ;; a probability
- The answer is 5 less than 12. ;; 12 ;; a difference
- The answer is 5 less than 12. ;; 5 ;; a difference
- Final Answer: from 3 to 8. ;; 8 ;; a range
- The answer is 34 plus the remainder. ;; 34 ;; a sum
- The answer is twice 17. ;; 17 ;; a product
- The answer is therefore unknown. ;; 0 ;; no answer
- Final Answer: The largest $n$ is 34 and the smallest is 2. ;; 2 ;; two answers to two questions
""",
)

MARKED = pairs(
    "gsm8k strict",
    r"""
+ #### 1 1/2 ;; 1.5 ;; a mixed number
+ #### 18 thousand ;; 18000 ;; a factor in words
+ #### 2 3/4 ;; 2.75 ;; a mixed number
+ #### 3 million ;; 3000000 ;; a factor in words
+ #### 1.5 million ;; 1500000 ;; a factor behind a decimal
+ #### 5 hundred ;; 500 ;; a factor in words
+ #### 7 billion ;; 7000000000 ;; a factor in words
+ #### -1 1/2 ;; -1.5 ;; the sign of a mixed number is of the whole
+ #### $2 1/2 ;; 2.5 ;; a price in halves
+ #### 12 hours ;; 12 ;; a unit
+ #### 0.10 ;; 0.1 ;; a zero at the end
+ #### 42. ;; 42 ;; a full stop
+ #### 1,234,567 ;; 1234567 ;; two separators
+ #### 3.50 ;; 7/2 ;; a fraction as truth
- #### 1 1/2 ;; 1 ;; the whole part is not the number
- #### 1 1/2 ;; 0.5 ;; the fraction is not the number
- #### 1 1/2 ;; 5.5 ;; a mixed number, not eleven halves
- #### 18 thousand ;; 18 ;; a factor in words counts
- #### 2 3/4 ;; 2 ;; the whole part is not the number
- #### 2 3/4 ;; 4 ;; the denominator is not the number
- #### 2 3/4 ;; 23/4 ;; a mixed number, not 23 quarters
- #### 3 million ;; 3 ;; a factor in words counts
- #### 5 hundred ;; 5 ;; a factor in words counts
- #### 7 billion ;; 7 ;; a factor in words counts
- #### 1.5 million ;; 1.5 ;; a factor in words counts
- #### -1 1/2 ;; -0.5 ;; the sign of a mixed number is of the whole
- #### 5 or 6 ;; 5 ;; hedged
- #### 5 to 6 ;; 5 ;; a range
- #### 5:30 ;; 5 ;; a time
- #### 2x ;; 2 ;; a coefficient is not the term
- #### 2π ;; 2 ;; pi is a factor
- #### 2\pi ;; 2 ;; pi is a factor
- #### 2\sqrt{3} ;; 2 ;; the root is a factor
- #### 1.2.3 ;; 1.2 ;; no number
- #### 1.234.567 ;; 1.234 ;; no number
- #### 1,234,567 ;; 1234 ;; the number goes on
- #### \frac{3}{4} ;; 3 ;; the numerator is not the number
- #### ;; 0 ;; nothing behind the mark
- #### .. ;; 0 ;; dots
- #### 3 × 4 ;; 3 ;; the first factor is not the product
- #### 3² ;; 3 ;; the base is not the power
- #### 10 / 0 ;; 10 ;; undefined
""",
) + pairs(
    "gsm8k flexible",
    r"""
+ He needs 2 1/2 hours. ;; 2.5 ;; a mixed number
+ That is 40 thousand. ;; 40000 ;; a factor in words
- He needs 2 1/2 hours. ;; 0.5 ;; the fraction is not the number
- He needs 2 1/2 hours. ;; 2 ;; the whole part is not the number
- That is 40 thousand. ;; 40 ;; a factor in words counts
""",
)

# The parser refuses most of these truths; their text can be compared.
AS_TEXT = pairs(
    "boxed",
    r"""
+ f(2) < f(1) < f(4) ;; f(2) < f(1) < f(4) ;; the same text
+ f(2)<f(1)<f(4) ;; f(2) < f(1) < f(4) ;; spaces mean nothing
+ \Delta ;; \Delta ;; the same text
+ |x|^2 ;; |x|^2 ;; the same text
+ 2[x+1] ;; 2[x+1] ;; the same text
+ \frac{V}{\ell h} ;; \frac{V}{\ell h} ;; the same text
+ \dfrac{V}{\ell h} ;; \frac{V}{\ell h} ;; only larger in print
+ x \ne \pm 5 ;; x \ne \pm 5 ;; the same text
+ x\neq\pm5 ;; x \ne \pm 5 ;; another name of the sign
+ 2{(x-3)}^2 ;; 2{(x-3)}^2 ;; the same text
+ 2(x-3)^2 ;; 2{(x-3)}^2 ;; braces mean nothing
+ \sin(90^\circ-x) ;; \sin(90^\circ-x) ;; the same text
+ g(0)<g(-1)<g(3) ;; g(0) < g(-1) < g(3) ;; spaces mean nothing
+ \nabla f ;; \nabla f ;; the same text
+ \frac{A}{\ell^2} ;; \frac{A}{\ell^{2}} ;; braces are optional
+ 5{(a+b)}^3 ;; 5{(a+b)}^3 ;; the same text
+ \cos(180^\circ-\alpha) ;; \cos(180^\circ - \alpha) ;; spaces mean nothing
+ \lfloor x \rfloor + 1 ;; \lfloor x \rfloor+1 ;; spaces mean nothing
+ \triangle ABC \sim \triangle DEF ;; \triangle ABC \sim \triangle DEF ;; the same text
+ AB \parallel CD ;; AB\parallel CD ;; spaces mean nothing
+ \overline{AB} ;; \overline{AB} ;; the same text
+ \sum_{k=1}^{n} a_k ;; \sum_{k=1}^n a_k ;; braces are optional
+ \int_0^1 f(x)\,dx ;; \int_0^1 f(x) \, dx ;; spaces mean nothing
+ \lim_{x\to 0} f(x) ;; \lim_{x \to 0} f(x) ;; spaces mean nothing
- f(1)<f(2)<f(4) ;; f(2)<f(1)<f(4) ;; another order
- f(2)<f(1) ;; f(2)<f(1)<f(4) ;; half of it
- f(2)>f(1)>f(4) ;; f(2)<f(1)<f(4) ;; the other order
- 4 ;; f(2)<f(1)<f(4) ;; the last number of the truth
- \delta ;; \Delta ;; a small delta is no capital one
- \Delta^2 ;; \Delta ;; another power
- |x| ;; |x|^2 ;; another power
- |y|^2 ;; |x|^2 ;; another variable
- 2[x-1] ;; 2[x+1] ;; another sign
- [x+1] ;; 2[x+1] ;; the factor is missing
- \frac{\ell h}{V} ;; \frac{V}{\ell h} ;; turned over
- \frac{V}{\ell} ;; \frac{V}{\ell h} ;; a factor is missing
- x = \pm 5 ;; x \ne \pm 5 ;; the opposite
- x \ne 5 ;; x \ne \pm 5 ;; one of two
- \pm 5 ;; x \ne \pm 5 ;; the opposite
- 2{(x+3)}^2 ;; 2{(x-3)}^2 ;; another sign
- 2{(x-3)}^3 ;; 2{(x-3)}^2 ;; another power
- \cos(90^\circ-x) ;; \sin(90^\circ-x) ;; another function
- \sin(90^\circ-y) ;; \sin(90^\circ-x) ;; another variable
- \nabla g ;; \nabla f ;; another function
- g(0)<g(3)<g(-1) ;; g(0)<g(-1)<g(3) ;; another order
- \triangle ABC \sim \triangle DFE ;; \triangle ABC \sim \triangle DEF ;; other corners
- AB \perp CD ;; AB\parallel CD ;; another relation
- \overline{AC} ;; \overline{AB} ;; another side
- \lceil x \rceil+1 ;; \lfloor x \rfloor+1 ;; rounded up
- \int_0^2 f(x)\,dx ;; \int_0^1 f(x)\,dx ;; another bound
- \sum_{k=0}^n a_k ;; \sum_{k=1}^n a_k ;; a term too many
""",
)

# --- more of each kind of answer ---

MORE_INTERVALS = pairs(
    "boxed",
    r"""
+ [3,\infty) ;; x\ge 3 ;; the same set
+ 3\le x ;; [3,\infty) ;; the same set, turned round
+ (1,2)\cup(0,1) ;; (0,1)\cup(1,2) ;; a union has no order
+ -2\le x<5 ;; [-2,5) ;; the same set
+ \left(-\infty,\frac12\right] ;; x\le 0.5 ;; equal ends
+ x\neq 3 ;; x \ne 3 ;; another name of the sign
+ 5>x\ge -2 ;; [-2,5) ;; the same set, turned round
+ t\in\left[0,\tfrac{3}{2}\right] ;; [0,1.5] ;; another name, equal ends
- (0,2) ;; (0,1)\cup(1,2) ;; 1 does not belong to it
- (3,\infty) ;; [3,\infty) ;; 3 belongs to it
- (-5,2] ;; [-2,5) ;; mirrored
- x\ge 3 ;; x\le 3 ;; the other side
- 3<x ;; x\ge 3 ;; 3 belongs to it
- [0,1] ;; \{0,1\} ;; two numbers are no interval
- \{0,1\} ;; [0,1] ;; an interval is more than its ends
- 0,1 ;; [0,1] ;; an interval is more than its ends
- (0,1)\cap(1,2) ;; (0,1)\cup(1,2) ;; what is in both, not in either
- x=3 ;; x\ne 3 ;; the opposite
- (1,2)\cup(3,5) ;; (1,2)\cup(3,4) ;; another end
- 4<x<1 ;; 1<x<4 ;; nothing lies there
- 0.5\le x ;; x\le 0.5 ;; the other side
- [-2,5)\cup\{7\} ;; [-2,5) ;; a point too many
""",
)

MORE_SETS = pairs(
    "boxed",
    r"""
+ \{a,b\} ;; \{b,a\} ;; a set has no order
+ \{3,1,2\} ;; \{1,2,3\} ;; a set has no order
+ 4 \text{ and } -1 ;; -1,4 ;; a list in words
+ \left\{\tfrac12,-1\right\} ;; \{-1,0.5\} ;; equal elements
+ \{(0,1),(1,0)\} ;; \{(1,0),(0,1)\} ;; a set of points has no order
+ -3,\frac{6}{4} ;; 1.5,-3 ;; equal elements
- \{1,-2\} ;; \{1,2\} ;; another sign
- \{\{1\},2\} ;; \{1,2\} ;; a set is no element of its own
- 12 ;; 1,2 ;; two numbers are no number
- 1.2 ;; 1,2 ;; the comma is never decimal
- \{1,2,\ldots\} ;; \{1,2\} ;; it goes on
- 2,3 ;; 2,3,5 ;; one too few
- 2,3,5,7 ;; 2,3,5 ;; one too many
- (3,4) ;; \{3,4\} ;; a point is no set
- \{(2,1)\} ;; \{(1,2)\} ;; the point is swapped
- \{a\} ;; \{A\} ;; a capital is another letter
- 3 ;; \{1,2,3\} ;; the size is not the set
- \{1,4,9\} ;; \{1,2,3\} ;; squared
- \{\emptyset\} ;; \emptyset ;; a set that holds the empty set
- A\cap B ;; A\cup B ;; what is in both, not in either
""",
)

TUPLES = pairs(
    "boxed",
    r"""
+ (-1,\ 0,\ 2) ;; (-1,0,2) ;; spaces mean nothing
+ \left(\frac{1}{2},\frac{1}{3}\right) ;; (1/2,1/3) ;; two spellings
+ (2\sqrt2, 0) ;; (\sqrt8,0) ;; equal coordinates
+ \langle 3,-1\rangle ;; \langle 3, -1 \rangle ;; spaces mean nothing
+ (a+b,c) ;; (b+a,c) ;; terms commute
+ (0,1),(1,0) ;; (1,0),(0,1) ;; a list of points has no order
- (1,2,3,4) ;; (1,2),(3,4) ;; one point is no two
- (1,2),(3,4) ;; (1,2,3,4) ;; two points are no one
- ((1,2),3) ;; (1,2,3) ;; a point is no coordinate
- \langle -1,3\rangle ;; \langle 3,-1 \rangle ;; swapped
- (0,2,-1) ;; (-1,0,2) ;; turned
- (12) ;; (1,2) ;; a number is no point
- (1.2) ;; (1,2) ;; a number is no point
- (1,2,3] ;; (1,2,3) ;; no such brackets
- (x,-y) ;; (-x,y) ;; mirrored
- (3;4;5) ;; (3,4) ;; another dimension
- (\frac12,\frac12) ;; (\frac12,-\frac12) ;; another sign
""",
)

MATRICES = pairs(
    "boxed",
    r"""
+ \begin{bmatrix} 0 & -1 \\ 1 & 0 \end{bmatrix} ;; \begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix} ;; two brackets
+ \begin{pmatrix}1/2\\3\end{pmatrix} ;; \begin{pmatrix} \frac12 \\ 3 \end{pmatrix} ;; equal entries
+ A = \begin{pmatrix} 1 & 0 \\ 0 & 2 \end{pmatrix} ;; \begin{pmatrix} 1 & 0 \\ 0 & 2 \end{pmatrix} ;; the name
+ \begin{pmatrix} x+1 \\ y \end{pmatrix} ;; \begin{pmatrix} 1+x \\ y \end{pmatrix} ;; terms commute
- \begin{pmatrix} 0 & 1 \\ -1 & 0 \end{pmatrix} ;; \begin{pmatrix} 0 & -1 \\ 1 & 0 \end{pmatrix} ;; the other turn
- \begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix} ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; a determinant
- -2 ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; a determinant is no matrix
- 2\begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; \begin{pmatrix} 2 \\ 2 \end{pmatrix} ;; the factor is of both entries
- 1 ;; \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix} ;; one is not the identity
- \begin{pmatrix} 2 \\ 1 \end{pmatrix} ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; swapped
- 1,2,3,4 ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; a list is no matrix
- \begin{pmatrix} 1 & 2 & 3 & 4 \end{pmatrix} ;; \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ;; a row is no square
- \begin{pmatrix} R \\ r \end{pmatrix} ;; \begin{pmatrix} r \\ R \end{pmatrix} ;; swapped, as the letters differ
- \begin{pmatrix} 1 \\ 2 \\ 0 \end{pmatrix} ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; another dimension
- \begin{pmatrix} 0 & 0 \\ 0 & 0 \end{pmatrix} ;; 0 ;; a matrix is no number
- -\begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; another sign
""",
)

EQUATIONS = pairs(
    "boxed",
    r"""
+ 2y-x=-5 ;; x-2y=5 ;; both signs turned
+ 4y=12-3x ;; 3x+4y-12=0 ;; terms on the other side
+ 4x^2+9y^2=36 ;; \frac{x^2}{9}+\frac{y^2}{4}=1 ;; a multiple of the equation
+ (y+2)^2+(x-1)^2=9 ;; (x-1)^2+(y+2)^2=9 ;; terms commute
+ f(x)=3x-1 ;; 3x-1 ;; the name is optional
+ 3x-1 ;; f(x)=3x-1 ;; the name is optional
+ g(t)=t^2 ;; t^2 ;; the name is optional
+ f(x) = -1+3x ;; f(x)=3x-1 ;; terms commute
+ f^{-1}(x)=\frac{x-1}{3} ;; \frac{x-1}{3} ;; the name of an inverse is optional
+ P(x)=x^2-x ;; x(x-1) ;; expanded
+ f(2)=7 ;; 7 ;; the name is optional
+ h(x)=\frac{1}{x+1} ;; (x+1)^{-1} ;; a negative power
+ 2+3=5 ;; 5 ;; the last side of a chain
- (x+1)^2+(y-2)^2=9 ;; (x-1)^2+(y+2)^2=9 ;; another centre
- (x-1)^2+(y+2)^2=3 ;; (x-1)^2+(y+2)^2=9 ;; another radius
- x-2y=-5 ;; x-2y=5 ;; another sign
- 3x+4y=0 ;; 3x+4y=12 ;; another constant
- y=x^2 ;; x=y^2 ;; swapped
- y<2x ;; y=2x ;; an inequality is no equation
- 0=0 ;; x-2y=5 ;; true of everything
- x=x ;; x=5 ;; true of everything
- y=\frac12x ;; y=2x ;; another slope
- xy=0 ;; x=0 ;; it has more solutions
- x^2=4 ;; x=2 ;; not solved
- 5=6=7=8 ;; 8 ;; naming everything is no answer
- f(x)=3x+1 ;; 3x-1 ;; another sign
- f(x)=x ;; f(x)=2x ;; another slope
- 3t-1 ;; 3x-1 ;; another variable
- f(x) ;; 3x-1 ;; a name is no value
- f(x)=|x| ;; f(x)=x ;; differs where x is negative
- f(2)=8 ;; 7 ;; another value
- y=\sin(x+1) ;; 1+\sin x ;; the brackets
- y=2x,y=3x ;; y=2x ;; an equation too many
""",
)

POLYNOMIALS = pairs(
    "boxed",
    r"""
+ \frac{1}{x^{-2}} ;; x^2 ;; a law of powers
+ (b-a)^2 ;; (a-b)^2 ;; an even power
+ (x-1)(x^2+x+1) ;; x^3-1 ;; factored
+ \frac{2x+4}{2} ;; x+2 ;; equal expressions
+ 2\sqrt{2x} ;; \sqrt{8x} ;; equal roots
+ ba^2 ;; a^2b ;; factors commute
+ \sin 2x ;; 2\sin x\cos x ;; an identity
+ \frac{\beta+\alpha}{2} ;; \frac{\alpha+\beta}{2} ;; terms commute
+ -(x-2) ;; 2-x ;; expanded
+ |2-x| ;; |x-2| ;; the sign within the bars
+ \lvert x \rvert ;; |x| ;; two spellings
- (b-a)^3 ;; (a-b)^3 ;; an odd power
- a^2-b^2 ;; (a-b)^2 ;; no square of a difference
- x^3+1 ;; (x-1)(x^2+x+1) ;; another sign
- x+4 ;; \frac{2x+4}{2} ;; only half of it divided
- \frac{1}{a}+\frac{1}{b} ;; \frac{1}{a+b} ;; no sum of fractions
- a+b ;; \sqrt{a^2+b^2} ;; no root of a sum
- (xy)^2 ;; xy^2 ;; the exponent is of y alone
- \frac{a}{bc} ;; \frac{a}{b}c ;; the factor is above
- 2\sin x ;; \sin 2x ;; the factor is in the angle
- \ln(x+1) ;; \ln x+1 ;; the brackets
- -x ;; x^{-1} ;; the sign is of the exponent
- \alpha ;; a ;; a Greek letter
- \beta ;; \alpha ;; another Greek letter
- x^2+x ;; x^3 ;; exponents do not add here
- |x| ;; x ;; differs where x is negative
- |x+2| ;; |x-2| ;; another sign
- |x|-1 ;; |x-1| ;; the one is within the bars
- -|x| ;; |x| ;; another sign
- \lceil \frac{n}{2} \rceil ;; \lfloor \frac{n}{2} \rfloor ;; rounded up
- \frac{n}{2} ;; \lfloor \frac{n}{2} \rfloor ;; not rounded
- \lfloor x\rfloor+1 ;; \lceil x\rceil ;; differs at whole numbers
""",
)

LOGARITHMS = pairs(
    "boxed",
    r"""
+ \log_{3} 81 ;; 4 ;; a logarithm is a closed form
+ \log_4 8 ;; \frac32 ;; a logarithm is a closed form
+ 2\ln 3 ;; \ln 9 ;; a law of logarithms
+ \frac{\ln 5}{\ln 2} ;; \log_2 5 ;; another base
+ \log_2{5} ;; \log_2 5 ;; braces are optional
+ \ln 2+\ln 3 ;; \ln 6 ;; a law of logarithms
+ -\ln 2 ;; \ln\frac12 ;; a law of logarithms
- \log_5 2 ;; \log_2 5 ;; turned over
- \ln 5 ;; \log_2 5 ;; another base
- \log_2 3 ;; \log_3 2 ;; turned over
- \ln 5 ;; \ln 2+\ln 3 ;; no sum of logarithms
- 2.3219 ;; \log_2 5 ;; an approximation is not the number
- \frac{\log 5}{2} ;; \log_2 5 ;; the base is no divisor
- \ln(-2) ;; \ln 2 ;; another sign
- 25 ;; \log_2 5 ;; base and number are no digits
- \log_2 6 ;; \log_2 5 ;; another number
- 5\ln 2 ;; \ln 10 ;; the factor is an exponent
""",
)

COUNTS = pairs(
    "boxed",
    r"""
+ \binom{7}{3} ;; 35 ;; a closed form
+ \dbinom{6}{2} ;; 15 ;; only larger in print
+ \binom{7}{3} ;; \binom{7}{4} ;; the binomial's symmetry
+ \frac{8!}{2!3!} ;; 3360 ;; a closed form
+ \frac{10!}{3!7!} ;; \binom{10}{3} ;; the binomial's definition
+ (3!)! ;; 720 ;; six, and its factorial
+ 6! ;; 720 ;; a closed form
- \binom{7}{2} ;; 35 ;; another binomial
- \frac{7}{3} ;; \binom{7}{3} ;; a fraction is no binomial
- 73 ;; \binom{7}{3} ;; two numbers are no digits
- 6 ;; 6! ;; the factorial is left out
- 3!! ;; 720 ;; the double factorial is 3
- 5!-1 ;; 120 ;; one less
- \binom{3}{7} ;; 35 ;; upside down
- 2n! ;; (2n)! ;; the brackets
- 8! ;; \frac{8!}{2!3!} ;; not divided
- \binom{52}{4} ;; \binom{52}{5} ;; another binomial
- n!+1 ;; (n+1)! ;; the brackets
- n ;; n! ;; the factorial is left out
""",
)

COMPLEX = pairs(
    "boxed",
    r"""
+ -i ;; \frac{1}{i} ;; equal complex numbers
+ \frac{1-i\sqrt{3}}{2} ;; \frac{1}{2}-\frac{\sqrt3}{2}i ;; equal complex numbers
+ 5e^{i\pi/2} ;; 5i ;; polar form
+ \cos\frac{\pi}{3}+i\sin\frac{\pi}{3} ;; \frac12+\frac{\sqrt3}{2}i ;; polar form
+ \sqrt{-9} ;; 3i ;; the root of a negative number
+ 1+2i,1-2i ;; 1\pm 2i ;; both signs
+ \{-i,i\} ;; \pm i ;; both signs
+ 0+2i ;; 2i ;; a real part of zero
- i ;; -i ;; conjugate
- 1 ;; i ;; i is no one
- -1 ;; i ;; i squared
- 5 ;; 3+4i ;; the modulus is not the number
- 2+3i ;; 3+2i ;; swapped
- -3+2i ;; 3-2i ;; both signs turned
- 3 ;; 3i ;; imaginary
- 3i ;; \pm 3i ;; one of two signs
- 7i ;; 3+4i ;; real and imaginary do not add
- (3,4) ;; 3+4i ;; a point is no complex number
- e^{2i\pi/3} ;; e^{i\pi/3} ;; another angle
""",
)

DECIMALS = pairs(
    "boxed",
    r"""
+ 0.\overline{27} ;; \frac{3}{11} ;; a repeating decimal is exact
+ 0.\overline{142857} ;; \frac17 ;; a long period
+ 1.\overline{6} ;; \frac53 ;; above one
+ 0.58\overline{3} ;; \frac{7}{12} ;; a period of one digit
+ 0.2\overline{7} ;; \frac{5}{18} ;; the period begins later
+ 0.\overline{33} ;; 0.\overline{3} ;; the same decimal
+ 0.125 ;; \frac18 ;; exactly equal
+ 12.0 ;; 12 ;; a zero at the end
+ 3.2\times 10^{-4} ;; 0.00032 ;; scientific notation
+ 1.5e3 ;; 1500 ;; scientific notation of computers
+ 4 \cdot 10^6 ;; 4000000 ;; scientific notation with a dot
+ 2.50\times 10^2 ;; 250 ;; a zero at the end
+ 1\frac{3}{4} ;; \frac74 ;; a mixed number
+ 5\,\frac{1}{3} ;; \frac{16}{3} ;; a mixed number with a thin space
+ 10 2/5 ;; 10.4 ;; a mixed number in plain text
+ -1\frac{1}{2} ;; -1.5 ;; the sign of a mixed number is of the whole
- 0.27 ;; \frac{3}{11} ;; rounded
- 0.\overline{72} ;; \frac{3}{11} ;; the period turned round
- 0.2\overline{7} ;; \frac{3}{11} ;; the period begins too late
- 0.\overline{3} ;; 0.3 ;; a period is more than its digits
- 0.\overline{14} ;; \frac17 ;; the period is too short
- 27 ;; 0.\overline{27} ;; the period is not the decimal
- 0.1666 ;; \frac16 ;; rounded
- 0.1\overline{6} ;; 0.\overline{16} ;; the period begins elsewhere
- 3.2\times 10^{4} ;; 0.00032 ;; another sign of the exponent
- 3.2\times 10^{-5} ;; 0.00032 ;; another power of ten
- 10^6 ;; 4\cdot 10^6 ;; the factor is missing
- 1.5e3 ;; 1.5 ;; the power of ten counts
- 1.5e3 ;; 3 ;; an exponent is not the number
- 6.02\times 10^{23} ;; 6.022\times 10^{23} ;; rounded
- 1\frac34 ;; \frac34 ;; the whole part counts
- 1\frac34 ;; \frac{13}{4} ;; a mixed number, not 13 quarters
- 2 1/2 ;; \frac{21}{2} ;; a mixed number, not 21 halves
- 2 1/2 ;; 1 ;; a mixed number is a sum, not a product
- -1\frac12 ;; -\frac12 ;; the sign of a mixed number is of the whole
- 1/2/3 ;; \frac12 ;; divided once more
- --5 ;; -5 ;; two signs make none
- 12 34 ;; 1234 ;; two numbers
- 3 4 ;; 12 ;; two numbers are no product
- 0x10 ;; 0 ;; the notation of a programming language
- 5,5 ;; 5.5 ;; the comma is never decimal
- 1.2.3 ;; 1.2 ;; no number
""",
)

SHARES = pairs(
    "boxed",
    r"""
+ 37.5\% ;; \frac38 ;; equal values
+ 200\% ;; 2 ;; equal values
+ 0.25\% ;; 0.0025 ;; equal values
+ 33\frac{1}{3}\% ;; \frac13 ;; a mixed number of percents
+ 10\text{ percent} ;; 10\% ;; the word
+ 3:4 ;; 3:4 ;; the same ratio
+ 3 : 4 ;; 3:4 ;; spaces mean nothing
+ 1:2:3 ;; 1 : 2 : 3 ;; spaces mean nothing
- 37.5 ;; \frac38 ;; without the sign a hundred times too much
- 37\% ;; \frac38 ;; rounded
- 33\% ;; \frac13 ;; rounded
- 20\% ;; 2 ;; a tenth of it
- 0.25\% ;; 0.25 ;; a hundredth of it
- -10\% ;; 10\% ;; another sign
- 10\%,20\% ;; 10\% ;; hedged
- 110\% ;; 10\% ;; the whole on top of it
- 4:3 ;; 3:4 ;; turned over
- 3:5 ;; 3:4 ;; another ratio
- 3 ;; 3:4 ;; half of the ratio
- 7 ;; 3:4 ;; the sum is not the ratio
- 3:2:1 ;; 1:2:3 ;; turned round
- 1:2 ;; 1:2:3 ;; a part is missing
- 3.4 ;; 3:4 ;; a decimal is no ratio
""",
)

AMOUNTS = pairs(
    "boxed",
    r"""
+ \$12.50 ;; 12.5 ;; dollars and cents
+ 12.50 ;; \$12.50 ;; a missing unit is forgiven
+ \$1{,}250 ;; 1250 ;; TeX's comma without space
+ \$ 40 ;; 40 ;; a space behind the sign
+ 40\text{ dollars} ;; \$40 ;; the word
+ 75 ;; 75\text{ cents} ;; a missing unit is forgiven
+ -\$5 ;; -5 ;; a loss
+ 30\text{ minutes} ;; 30 ;; a unit of the question
+ 15\text{ m/s} ;; 15 ;; a unit with a slash
+ 8\text{ people} ;; 8 ;; what is counted may be named
+ 2.5\ \text{L} ;; 2.5 ;; a unit of one letter
+ 120^\circ ;; 120\text{ degrees} ;; degrees in words
+ 24\text{ cm}^2 ;; 24\text{ cm}^{2} ;; braces are optional
+ 7:45 ;; 7{:}45 ;; TeX's colon without space
+ 7:45\text{ AM} ;; 7:45\text{ a.m.} ;; two spellings
+ \text{March 3} ;; March 3 ;; the same day
+ \text{July 4, 1776} ;; July 4, 1776 ;; the same day
- 75\text{ cents} ;; \$75 ;; cents are no dollars
- \$75 ;; 75\text{ cents} ;; dollars are no cents
- \$12.50 ;; \$12.05 ;; another price
- \$125 ;; \$12.50 ;; the point is missing
- €30 ;; \$30 ;; another currency
- \$1.250 ;; \$1250 ;; the point is never a separator
- \$40\text{ million} ;; \$40 ;; a factor in words
- -\$5 ;; \$5 ;; a loss is no gain
- 30\text{ min} ;; 30\text{ hours} ;; a wrong unit
- 15\text{ m/s} ;; 15\text{ km/h} ;; a wrong unit
- 6\text{ ft} ;; 6\text{ in} ;; a wrong unit
- 24\text{ cm}^2 ;; 24\text{ m}^2 ;; a wrong unit
- 10\text{ kg} ;; 10\text{ lb} ;; a wrong unit
- 5\text{ hundred} ;; 5 ;; a factor in words
- 5\text{ thousand} ;; 5 ;; a factor in words
- 3\text{ times }x ;; 3 ;; a product is no number
- 4\text{ more than }x ;; 4 ;; a sum is no number
- 20^\circ\text{C} ;; 20^\circ\text{F} ;; another scale
- \text{at most }5 ;; 5 ;; a bound is no value
- \text{at least }5 ;; 5 ;; a bound is no value
- \text{more than }5 ;; 5 ;; a bound is no value
- \text{not }5 ;; 5 ;; denied
- \text{5 or 6} ;; 5 ;; hedged
- 5\% ;; 5\text{ cm} ;; a wrong unit
- 7:45\text{ PM} ;; 7:45\text{ AM} ;; the other half of the day
- 7.45 ;; 7:45 ;; a decimal is no time
- \frac{7}{45} ;; 7:45 ;; a fraction is no time
- 45 ;; 7:45 ;; minutes are not the time
- 7 ;; 7:45\text{ p.m.} ;; an hour is not the time
- \text{March 13} ;; \text{March 3} ;; another day
- \text{May 3} ;; \text{March 3} ;; another month
- 3 ;; \text{March 3} ;; a day without its month
- \text{July 4, 1767} ;; \text{July 4, 1776} ;; another year
""",
)

INDICES = pairs(
    "boxed",
    r"""
+ 110_2 ;; 110_{2} ;; the base may have braces
+ 2A_{16} ;; 2A_{16} ;; a letter is a digit
+ x_2+x_1 ;; x_1+x_2 ;; terms commute
+ x_{1} ;; x_1 ;; braces are optional
- 2B_{16} ;; 2A_{16} ;; another digit
- 110_3 ;; 110_2 ;; another base
- 6 ;; 110_2 ;; the decimal value, where base 2 was asked
- 111_2 ;; 110_2 ;; another digit
- 57_8 ;; 75_8 ;; digits swapped
- 1102 ;; 110_2 ;; a base is no digit
- x_2 ;; x_1 ;; another index
- x ;; x_1 ;; the index is missing
- x^2 ;; x_2 ;; an index is no exponent
- a_{21} ;; a_{12} ;; indices swapped
- a_n+1 ;; a_{n+1} ;; the one is in the index
- 1 ;; x_1 ;; an index is no value
- a_N ;; a_n ;; a capital is another letter
""",
)

SIGNS_BOTH = pairs(
    "boxed",
    r"""
+ \sqrt5,-\sqrt5 ;; \pm\sqrt5 ;; both signs
+ \frac{-1+\sqrt5}{2},\frac{-1-\sqrt5}{2} ;; \frac{-1\pm\sqrt5}{2} ;; both signs
+ \pm\frac12 ;; \{-0.5,0.5\} ;; both signs
+ x=\pm 4 ;; \pm 4 ;; the name is optional
+ -3,-2,2,3 ;; \pm 2,\pm 3 ;; both signs of two
- \sqrt5 ;; \pm\sqrt5 ;; one of two signs
- 2\pm i ;; 2+i ;; a sign too many
- \frac{1\pm\sqrt5}{2} ;; 1\pm\sqrt5 ;; half of it
- 0 ;; \pm 4 ;; both signs do not cancel
- 4 ;; x=\pm 4 ;; one of two signs
- \pm 2 ;; \pm 2,\pm 3 ;; half of it
- \pm 3 ;; 3,3 ;; the signs differ
- (\pm 1,2) ;; (1,2) ;; a point too many
""",
)

MORE_WORDS = pairs(
    "boxed",
    r"""
+ \text{Alice} ;; Alice ;; the same name
+ \text{Bob and Carol} ;; Bob and Carol ;; the same names
+ \text{ellipse} ;; Ellipse ;; capitals do not count
+ \text{undefined} ;; undefined ;; the same word
+ \text{none} ;; None ;; capitals do not count
+ \textit{Thursday} ;; \text{Thursday} ;; italic or not
- \text{Bob} ;; Bob and Carol ;; one of two names
- \text{Bob and Alice} ;; Bob and Carol ;; another name
- \text{Ann} ;; \text{Anna} ;; another name
- rectangle ;; square ;; another shape
- \text{acute} ;; \text{obtuse} ;; another angle
- \text{True} ;; \text{False} ;; the opposite
- 1 ;; \text{True} ;; a number is no word
- 0 ;; \text{no solution} ;; zero is a solution
- 0 ;; \text{undefined} ;; zero is defined
- \text{undefined} ;; 0 ;; zero is defined
- \infty ;; \text{undefined} ;; infinity is another answer
- \text{hyperbola} ;; parabola ;; another curve
- \text{not prime} ;; \text{prime} ;; the opposite
- \text{yes or no} ;; yes ;; hedged
- \text{diverges} ;; \text{converges} ;; the opposite
- \text{increasing} ;; \text{decreasing} ;; the opposite
- \text{unprovable} ;; \text{provable} ;; the opposite
- \text{I do not know} ;; 5 ;; no answer
- \text{the answer} ;; 5 ;; no answer
- \text{see above} ;; 12 ;; no answer
- ? ;; 5 ;; no answer
- ... ;; 5 ;; no answer
- \ldots ;; 5 ;; no answer
- \boxed{} ;; 0 ;; an empty box in a box
- NaN ;; 0 ;; not a number
- None ;; 0 ;; nothing
- null ;; 0 ;; nothing
- answer ;; 5 ;; the word for it
- 0,1,2,3,4,5,6,7,8,9 ;; 7 ;; naming everything is no answer
- (-\infty,\infty) ;; 7 ;; naming everything is no answer
- 7=8 ;; 7 ;; it contradicts itself
- 7\ne 7 ;; 7 ;; it contradicts itself
- 6<7<8 ;; 7 ;; where it lies, not what it is
- 7? ;; 8 ;; another number
- 😀 ;; 5 ;; no answer
""",
)

EQUAL_NUMBERS = pairs(
    "boxed",
    r"""
+ \frac{6}{8} ;; \frac34 ;; not in lowest terms
+ 0.75 ;; \frac34 ;; exactly equal
+ 1.25 ;; \frac54 ;; exactly equal
+ -0.2 ;; -\frac15 ;; exactly equal
+ \frac{5}{4} ;; 1\frac14 ;; a mixed number
+ \frac{22}{7} ;; 3\frac17 ;; a mixed number
+ \frac{7}{1} ;; 7 ;; a fraction that is a whole number
+ \sqrt{18} ;; 3\sqrt2 ;; equal roots
+ \frac{10}{\sqrt5} ;; 2\sqrt5 ;; rationalised
+ 27^{1/3} ;; 3 ;; a fractional exponent
+ \sin\frac{\pi}{2} ;; 1 ;; a sine of radians
+ 75/100 ;; \frac{3}{4} ;; not in lowest terms
+ \frac{-5}{-7} ;; \frac57 ;; both signs turned
+ -\frac{-2}{3} ;; \frac23 ;; two signs make none
+ \frac{13}{4} ;; 3.25 ;; exactly equal
+ 3\frac{1}{4} ;; 3.25 ;; a mixed number
+ \dfrac{17}{3} ;; 5\frac{2}{3} ;; a mixed number
+ \frac{\pi}{4} ;; \frac14\pi ;; factors commute
+ 0.5\pi ;; \frac{\pi}{2} ;; equal coefficients
+ \frac{2\pi}{6} ;; \frac{\pi}{3} ;; not in lowest terms
+ \frac{\sqrt{3}}{3} ;; \frac{1}{\sqrt3} ;; rationalised
+ \sqrt{50} ;; 5\sqrt{2} ;; equal roots
+ \sqrt{\frac{1}{2}} ;; \frac{\sqrt2}{2} ;; a root of a fraction
+ \sqrt{0.25} ;; \frac12 ;; a root of a decimal
+ \frac{6}{\sqrt{3}} ;; 2\sqrt{3} ;; rationalised
+ \sqrt[4]{4} ;; \sqrt2 ;; a fourth root
+ \sqrt[3]{54} ;; 3\sqrt[3]{2} ;; equal cube roots
+ 8^{1/3} ;; 2 ;; a fractional exponent
+ 2^{0.5} ;; \sqrt{2} ;; a fractional exponent
+ 4^{\frac{3}{2}} ;; 8 ;; a fractional exponent
+ \sqrt6\,/\,2 ;; \frac{\sqrt6}{2} ;; a slash with thin spaces
+ (1+\sqrt5)/2 ;; \frac{1+\sqrt5}{2} ;; a slash behind brackets
+ \frac12+\frac{\sqrt5}{2} ;; \frac{1+\sqrt5}{2} ;; one fraction or two
+ \frac{1}{\sqrt2-1} ;; \sqrt2+1 ;; rationalised
+ \sqrt{3+2\sqrt2} ;; 1+\sqrt2 ;; a nested root
+ -\sqrt{12} ;; -2\sqrt3 ;; equal roots with a sign
+ \frac{3-\sqrt{5}}{2} ;; \frac{-\sqrt5+3}{2} ;; terms commute
+ \left(\frac{2}{3}\right)^3 ;; \frac{8}{27} ;; a power of a fraction
+ \frac{1}{3^4} ;; 3^{-4} ;; a negative power
+ e^{\ln 5} ;; 5 ;; the exponential of a logarithm
+ \frac{1}{e} ;; e^{-1} ;; a negative power
+ \sqrt{e} ;; e^{1/2} ;; a root of e
+ e^3/e ;; e^2 ;; a law of powers
+ \tan\frac{\pi}{4} ;; 1 ;; a tangent of radians
+ \sin\frac{\pi}{6} ;; \frac12 ;; a sine of radians
+ \arctan 1 ;; \frac{\pi}{4} ;; an arctangent
+ \cos\pi ;; -1 ;; a cosine of radians
+ 2\cdot 10^{-2} ;; 0.02 ;; scientific notation
+ 9.1\times10^{3} ;; 9100 ;; scientific notation
+ 10^{9} ;; 1,000,000,000 ;; a power of ten
+ 2{,}500{,}000 ;; 2500000 ;; TeX's commas
+ 3\,141\,592 ;; 3141592 ;; thin spaces before three digits
+ \frac{1,000}{3} ;; \frac{1000}{3} ;; a separator above
+ 123456789012345678901234567890 ;; 123456789012345678901234567890 ;; a long number
+ 2^{100} ;; 1267650600228229401496703205376 ;; all digits of a power
+ 0.000001 ;; 10^{-6} ;; a small decimal
+ {7} ;; 7 ;; braces mean nothing
+ \displaystyle\frac{7}{9} ;; \frac79 ;; only larger in print
+ \mathbf{17} ;; 17 ;; a bold number
+ \text{17} ;; 17 ;; a number in text
+ \textbf{17} ;; 17 ;; a bold number in text
+ \mathrm{17} ;; 17 ;; an upright number
+ 17\, ;; 17 ;; a thin space behind it
+ ~17~ ;; 17 ;; TeX's ties around it
+ \ 17 ;; 17 ;; TeX's space before it
+ \quad 17 ;; 17 ;; a wide space before it
+ $17$ ;; 17 ;; dollars within the box
+ \(17\) ;; 17 ;; parentheses within the box
""",
)

EQUAL_EXPRESSIONS = pairs(
    "boxed",
    r"""
+ 5x+10 ;; 5(x+2) ;; expanded
+ (x+3)(x-3) ;; x^2-9 ;; factored
+ a(b+c) ;; ab+ac ;; factored
+ 3(x-2) ;; 3x-6 ;; expanded
+ (2x-3)^2 ;; 4x^2-12x+9 ;; expanded
+ x^2-5x+6 ;; (x-2)(x-3) ;; factored
+ (x-3)(x-2) ;; (x-2)(x-3) ;; factors commute
+ (3-x)(2-x) ;; (x-2)(x-3) ;; two signs turned
+ x(x^2-1) ;; x^3-x ;; expanded
+ -x^2+4 ;; 4-x^2 ;; terms commute
+ \frac{x}{2}+\frac{1}{2} ;; \frac{x+1}{2} ;; one fraction or two
+ 0.25x^2 ;; \frac{x^2}{4} ;; equal coefficients
+ \frac{1}{2}x ;; \frac{x}{2} ;; a coefficient before or above
+ x\cdot x ;; x^2 ;; a square
+ 2\cdot x\cdot y ;; 2xy ;; the sign of multiplication is optional
+ 2*x*y ;; 2xy ;; the sign of multiplication in plain text
+ x^2/4 ;; \frac{x^2}{4} ;; a slash
+ \frac{a^2-b^2}{a-b} ;; a+b ;; equal but at one line
+ \frac{3}{1-x} ;; \frac{-3}{x-1} ;; two signs turned
+ 1-\frac{1}{n+1} ;; \frac{n}{n+1} ;; one fraction or two
+ \frac{n(n+1)}{2} ;; \frac{n^2+n}{2} ;; expanded
+ \frac{n^2(n+1)^2}{4} ;; \left(\frac{n(n+1)}{2}\right)^2 ;; the square of a fraction
+ 4^n ;; 2^{2n} ;; a law of powers
+ 3\cdot 3^n ;; 3^{n+1} ;; a law of powers
+ 2^n-1 ;; -1+2^n ;; terms commute
+ x^{-2} ;; \frac{1}{x^2} ;; a negative power
+ \sqrt{x} ;; x^{1/2} ;; a fractional exponent
+ \sqrt{4x^2+4} ;; 2\sqrt{x^2+1} ;; a factor before the root
+ \ln(ab) ;; \ln(ba) ;; factors commute
+ e^{2x} ;; (e^x)^2 ;; a law of powers
+ e^{-x} ;; \frac{1}{e^x} ;; a negative power
+ \sin^2 x ;; 1-\cos^2 x ;; an identity
+ \cos 2x ;; 2\cos^2 x-1 ;; an identity
+ \tan x ;; \frac{\sin x}{\cos x} ;; an identity
+ \sin(x) ;; \sin x ;; brackets are optional
+ (\sin x)^2 ;; \sin^2 x ;; the square of a sine
+ \frac{4\pi r^3}{3} ;; \frac43\pi r^3 ;; a coefficient before or above
+ 2\pi r(r+h) ;; 2\pi r^2+2\pi rh ;; expanded
+ \frac{1}{2}ab\sin C ;; \frac{ab\sin C}{2} ;; a coefficient before or above
+ k^2-1 ;; (k-1)(k+1) ;; factored
+ a^3+b^3 ;; (a+b)(a^2-ab+b^2) ;; factored
+ x^4-1 ;; (x^2+1)(x+1)(x-1) ;; factored
+ -(a-b) ;; b-a ;; expanded
+ a-(b-c) ;; a-b+c ;; expanded
+ 3x^2y-2xy^2 ;; xy(3x-2y) ;; factored
+ y=-x+2 ;; y=2-x ;; terms commute
+ y-2=3(x-1) ;; y=3x-1 ;; a line through a point
+ x+y=5 ;; y+x=5 ;; terms commute
+ 2x=3y ;; 3y=2x ;; sides swapped
+ x^2+y^2-4=0 ;; x^2+y^2=4 ;; terms on the other side
+ 6x-4y+10=0 ;; 3x-2y+5=0 ;; a multiple of the equation
+ y = \frac{1}{2}x-3 ;; y=\frac{x}{2}-3 ;; a coefficient before or above
+ S=\pi r^2 ;; \pi r^2 ;; the name is optional
+ a_n=2n+1 ;; 2n+1 ;; a name with an index
+ \theta=\frac{\pi}{6} ;; \frac{\pi}{6} ;; a Greek name
+ n=12 ;; 12 ;; the name is optional
+ \angle A=40^\circ ;; 40 ;; an angle's name
+ x_1=2,x_2=3 ;; x_1=2, x_2=3 ;; spaces mean nothing
+ a=1,b=2 ;; a=1, b=2 ;; spaces mean nothing
""",
)

EQUAL_GROUPS = pairs(
    "boxed",
    r"""
+ 5,3,1 ;; 1,3,5 ;; a list of solutions has no order
+ 1,\ 3,\ 5 ;; 1,3,5 ;; spaces mean nothing
+ 1, 3, and 5 ;; 1,3,5 ;; a list in words
+ 1,3,5 ;; \{1,3,5\} ;; the set of solutions
+ \{\,1,3,5\,\} ;; \{1,3,5\} ;; thin spaces mean nothing
+ \left\{1,3,5\right\} ;; \{5,3,1\} ;; left and right only stretch the braces
+ \lbrace 1,3\rbrace ;; \{1,3\} ;; another name of the braces
+ x=-2,7 ;; -2,7 ;; the name is optional
+ x = -2 \text{ or } x = 7 ;; -2,7 ;; solutions with their name
+ x\in\{-2,7\} ;; \{-2,7\} ;; the set of x
+ -2 \quad\text{and}\quad 7 ;; 7,-2 ;; a list in words, with wide spaces
+ 2+\sqrt3,2-\sqrt3 ;; 2\pm\sqrt3 ;; both signs
+ \frac{3\pm\sqrt{5}}{2} ;; \frac{3-\sqrt5}{2},\frac{3+\sqrt5}{2} ;; both signs
+ -\sqrt7,\sqrt7 ;; \pm\sqrt{7} ;; both signs
+ (0,0),(1,1) ;; (1,1), (0,0) ;; a list of points has no order
+ (0,0)\text{ and }(1,1) ;; (0,0),(1,1) ;; a list in words
+ (1.5,-2) ;; \left(\frac32,-2\right) ;; equal coordinates
+ (\sqrt{9},2) ;; (3,2) ;; equal coordinates
+ \left( -1 , 4 \right) ;; (-1,4) ;; spaces mean nothing
+ (2,-1,3) ;; \left(2,-1,3\right) ;; left and right only stretch the brackets
+ (0,1)\cup(3,\infty) ;; (0,1) \cup (3,+\infty) ;; the plus is optional
+ (3,\infty)\cup(0,1) ;; (0,1)\cup(3,\infty) ;; a union has no order
+ [-1,1] ;; -1\le x\le 1 ;; the same set
+ -1\leq x\leq 1 ;; [-1,1] ;; the same set
+ 1\geq x\geq -1 ;; [-1,1] ;; the same set, turned round
+ -1\leqslant x\leqslant 1 ;; [-1,1] ;; another shape of the sign
+ -1 <= x <= 1 ;; [-1,1] ;; the sign in plain text
+ x > 4 ;; (4,\infty) ;; the same set
+ x\in(4,\infty) ;; x>4 ;; the same set
+ 4 < x ;; x>4 ;; turned round
+ x\gt 4 ;; x>4 ;; another name of the sign
+ x\lt 4 ;; (-\infty,4) ;; another name of the sign
+ x\ge\frac{5}{2} ;; [2.5,\infty) ;; equal ends
+ x<-1 \text{ or } x>1 ;; (-\infty,-1)\cup(1,\infty) ;; the same set
+ k\ne 0 ;; k\neq 0 ;; another name of the sign
+ \begin{pmatrix} 3 & -1 \\ 0 & 2 \end{pmatrix} ;; \begin{pmatrix}3&-1\\0&2\end{pmatrix} ;; spaces mean nothing
+ \begin{pmatrix} 0.5 & 0 \end{pmatrix} ;; \begin{pmatrix} \frac12 & 0 \end{pmatrix} ;; equal entries
+ \text{A,B,D} ;; \text{A, B, D} ;; spaces mean nothing
+ \text{D, A, B} ;; A, B, D ;; letters of a question with several
""",
)

EQUAL_IN_PROSE = pairs(
    "flexible",
    r"""
+ Adding up gives $\boxed{\frac{5}{8}}$. ;; 0.625 ;; a box in a sentence
+ \[ \boxed{x = 12} \] ;; 12 ;; a box in a display
+ So the area is \fbox{$6\pi$}. ;; 6\pi ;; dollars within the other box
+ The answer is $\boxed{(2,-1)}$. ;; (2,-1) ;; a point
+ The answer is: 1,250. ;; 1250 ;; a separator
+ The answer is $-\frac{2}{7}$. ;; -\frac27 ;; a formula
+ Answer: $2\sqrt{3}$ ;; \sqrt{12} ;; a formula behind the colon
+ Thus the length is $\sqrt{10}$. ;; \sqrt{10} ;; the last formula
+ There are 36 ways. ;; 36 ;; the last number
+ The answer is 60 degrees. ;; 60^\circ ;; a unit in words
+ The answer is \(\frac{\pi}{3}\). ;; \frac{\pi}{3} ;; a formula in parentheses
""",
) + pairs(
    "gsm8k strict",
    r"""
+ She pays 3*6=18 dollars.↵#### 18 ;; 18 ;; the format of the data set
+ #### 18.00 ;; 18 ;; two zeros behind the point
+ #### $1,500 ;; 1500 ;; a price with a separator
+ ####25 ;; 25 ;; no space behind the mark
+ #### 25↵ ;; 25 ;; a line's end behind it
+ #### 0.25 ;; 1/4 ;; a fraction as truth
+ #### 15 ;; 2 + 13 = 15↵#### 15 ;; the truth is a solution
""",
)

# --- beside the maths ---

# What a second adversary found once the tables above passed.
SECOND_LOOK = (
    pairs(
        "boxed",
        r"""
- (-1)^k k! ;; k! ;; equal at even numbers alone
- \frac{k!}{2}(1+(-1)^k) ;; k! ;; zero at odd numbers
- \lceil k/2\rceil! ;; \lfloor k/2\rfloor! ;; equal at even numbers alone
- Q! ;; c! ;; another letter, though both are evaluated at whole numbers
- q! ;; h! ;; another letter in the same places
- (y,x)=(3,4) ;; (3,4) ;; the coordinates are named the other way round
- (b,a)=(3,4) ;; (3,4) ;; names out of order swap the coordinates
- a=1,b=2 ;; 2,1 ;; the names say which is first
- 3\text{ boys},\ 4\text{ girls} ;; 4 \text{ boys},\ 3\text{ girls} ;; the counts are swapped
- 3 dimes, 4 nickels ;; 4 dimes, 3 nickels ;; the coins are swapped
- 5\text{ oranges} ;; 5\text{ apples} ;; something else is counted
- 3\text{ mol} ;; 3\text{ kg} ;; an amount is no mass
- 5\text{ joules} ;; 5\text{ newtons} ;; energy is no force
- 20°F ;; 20°C ;; another scale
- 20\text{ degrees Fahrenheit} ;; 20\text{ degrees Celsius} ;; another scale in words
- 20\%\text{ decrease} ;; 20\% ;; the other direction
- 3\text{ loss} ;; 3 ;; a loss is negative
- 3 halves ;; 3 ;; half as much again
- 3 tenths ;; 3 ;; a tenth of it
- 7 hundredths ;; 7 ;; a hundredth of it
- 3 thousands ;; 3 ;; a thousand times as much
- 5 lakh ;; 5 ;; a hundred thousand times as much
- 5 crore ;; 5 ;; ten million times as much
- 5 per cent ;; 5 ;; written apart, still a hundredth
- 5 ppm ;; 5 ;; a millionth
- 12\text{ hex} ;; 12 ;; eighteen
- 3 factorial ;; 3 ;; six
- 0.3 repeating ;; 0.3 ;; a third
- 5\text{ is wrong} ;; 5 ;; denied
- 5 impossible ;; 5 ;; denied in a word
- x=5\text{ is false} ;; 5 ;; denied with its name
- 5 maybe ;; 5 ;; doubted
- 5 negative ;; 5 ;; the sign in words
- 2\mathrm{AB} ;; 2 ;; upright letters are factors or points
- 5\mathrm{xy} ;; 5 ;; upright variables are factors
- 3\pi h ;; 3\pi ;; a height is no hour
- \text{AB} ;; \text{Ab} ;; short names have their capitals
- 2[x] ;; 2x ;; brackets may round
- \{x\} ;; x ;; braces may be the fractional part
- 6\tau ;; \tau(6) ;; a function is no factor
- n\varphi ;; \varphi(n) ;; Euler's function is no factor
- 2\zeta ;; \zeta(2) ;; a value of zeta is no product
- 2F ;; F(2) ;; a value of F is no product
- \mathbf a\times\mathbf b ;; \mathbf b\times\mathbf a ;; the cross product turns its sign
- \vec a\cdot\vec b ;; \vec a\times\vec b ;; a number is no vector
- 3\frac{5}{2} ;; 5.5 ;; no mixed number, as five halves are more than one
- 0,250 ;; 250 ;; no separator stands behind a zero
- \tanh(140) ;; 1 ;; nearly
- \cosh(140)/\sinh(140) ;; 1 ;; nearly, by a quotient
- 1<2 ;; 1<3 ;; both are true, and say different things
- 4<2 ;; 2<1 ;; both are false, and say different things
- a=b=c ;; c ;; a chain of names is no value
- x=y=2 ;; 2 ;; two names have the value
- 90^\circ+x ;; 90+x ;; degrees and a bare letter do not add up
- 1,2;3,4 ;; 1,3;2,4 ;; the semicolon groups
- 5... ;; 5 ;; the digits go on
+ x=3,y=4 ;; (3,4) ;; coordinates with their names
+ y=2,x=1 ;; x=1,y=2 ;; names keep their values in any order
+ 60 mph ;; 60\text{ miles per hour} ;; two spellings of a speed
+ {3\over2} ;; \frac{3}{2} ;; plain TeX's fraction
+ {n\choose k} ;; \binom{n}{k} ;; plain TeX's binomial
+ (1010)_2 ;; 1010_2 ;; brackets around the digits
+ 1010_{\text{two}} ;; 1010_2 ;; the base in words
+ 0.\dot3 ;; \frac{1}{3} ;; a dot over the repeating digit
+ \text{\$25} ;; 25 ;; the dollar within the text
+ €25 ;; 25 ;; another currency's sign
+ \textcolor{blue}{5} ;; 5 ;; coloured
+ \underline{5} ;; 5 ;; underlined
+ \frac{n!}{k!(n-k)!} ;; \binom{n}{k} ;; the definition
+ 1,2,\ldots ;; 1,2,\dots ;; two kinds of dots
+ {\rm e}^2 ;; e^2 ;; the old command for upright letters
+ 12\text{ in}^2 ;; 12\text{ square inches} ;; a square in words
+ 20\text{ degrees Celsius} ;; 20°C ;; the scale in words
+ k(k-1)! ;; k! ;; the recursion
""",
    )
    + pairs(
        "flexible",
        r"""
+ so n = **34**. ;; 34 ;; bold behind a sign
+ x=\boxed{2} ;; 2 ;; the name before the box
+ \boxed{90}^\circ ;; 90 ;; degrees behind the box
+ \boxed{50}\% ;; 50 ;; percent behind the box
+ - \boxed{2} ;; 2 ;; an item of a list
+ The answers are 3 and 4. ;; 3,4 ;; two answers
+ Thus x = 3 or x = 4. ;; 3,4 ;; two solutions
+ The answer is $12$ apples. ;; 12 ;; a word behind the formula
- -\boxed{2} ;; 2 ;; the sign stands before the box
- 3\boxed{2} ;; 2 ;; a factor stands before the box
- \boxed{2}^3 ;; 2 ;; a power stands behind the box
- \boxed{2}\pi ;; 2 ;; a factor stands behind the box
- \sqrt{\boxed{2}} ;; 2 ;; a box under a root
- \frac{\boxed{1}}{\boxed{2}} ;; 2 ;; a box below a line
- \boxed{1}+\boxed{2} ;; 2 ;; a sum of boxes
- \boxed{1}/\boxed{2} ;; 2 ;; a quotient of boxes
- $\boxed{1}$ or else $\boxed{2}$ ;; 2 ;; hedged
- $\boxed{1}$, or perhaps $\boxed{2}$ ;; 2 ;; hedged with a doubt
- (a) \boxed{1} (b) \boxed{2} ;; 2 ;; two parts
- \boxed{1} as well as \boxed{2} ;; 2 ;; both
- The answer is $5$ or $6$. ;; 5 ;; hedged in formulas
- The answer is $5$ plus $6$. ;; 5 ;; a sum in words
- The answer is $5$, $6$ ;; 5 ;; a list of formulas
- The answers are 3 and 4. ;; 4 ;; one of two
- So x is not 5 ;; 5 ;; denied at the end
- it is minus 5 ;; 5 ;; the sign in a word
- x is less than $5$ ;; 5 ;; a bound
- That is 5 million ;; 5 ;; a magnitude in a word
- 10 minus 5 ;; 5 ;; a difference in words
- between 3 and 5 ;; 5 ;; two bounds
- 3 to 5 ;; 5 ;; a range in words
- 2 sqrt 5 ;; 5 ;; the number under a root
- log 5 ;; 5 ;; the number in a logarithm
- 5 pi ;; 5 ;; a factor in a word
- The answer is 5 if a is 6. ;; 6 ;; a condition
- <answer>5 is 6</answer> ;; 6 ;; nonsense in the tag
- The answer is wrong if $x$ is 34. ;; 34 ;; denied under a condition
""",
    )
    + pairs(
        "gsm8k strict",
        r"""
+ #### **5** ;; 5 ;; in bold
+ #### \$5 ;; 5 ;; the dollar as LaTeX has it
+ #### \boxed{5} ;; 5 ;; in a box behind the mark
+ #### €5 ;; 5 ;; another currency
+ #### (5) ;; 5 ;; in brackets
+ #### 5 apples per day ;; 5 ;; what is counted, in several words
+ #### 5 hundred thousand ;; 500000 ;; two magnitudes
- #### 5 x 2 ;; 5 ;; a product by the letter
- #### 5 times 2 ;; 5 ;; a product in words
- #### 5\times10^3 ;; 5 ;; a power of ten in LaTeX
- #### 5·2 ;; 5 ;; a product by a dot
- #### 5**2 ;; 5 ;; a power by two stars
- #### 5! ;; 5 ;; a factorial
- #### 5/x ;; 5 ;; a quotient
- #### 5 over 2 ;; 5 ;; a fraction in words
- #### 5 squared ;; 5 ;; a square in words
- #### 5 = 6 ;; 5 ;; a false equation
- #### 5, 6 ;; 5 ;; a list
- #### 5~10 ;; 5 ;; a range by a tilde
- #### 5...10 ;; 5 ;; a range by dots
- #### 5 and a half ;; 5 ;; a mixed number in words
- #### 5'6" ;; 5 ;; feet and inches
- #### 5_000 ;; 5 ;; another separator
- #### $5K ;; 5 ;; thousands by a letter
- #### 5 mil ;; 5 ;; millions, shortened
- #### 5万 ;; 5 ;; ten thousands by a sign
- #### 3 hours 30 minutes ;; 3 ;; two numbers
- #### 2 remainder 3 ;; 2 ;; a remainder
- #### 2pi ;; 2 ;; pi written out
""",
    )
    + pairs(
        "gsm8k flexible",
        r"""
+ \frac{1}{2} ;; 0.5 ;; a fraction in LaTeX
+ 1{,}000 ;; 1000 ;; TeX's comma without space
- \frac{1}{2} ;; 2 ;; the denominator alone
- √5 ;; 5 ;; the number under a root
- 5½ ;; 5 ;; a half more
- at 12:30 ;; 30 ;; the minutes of a time
- x is minus 5 ;; 5 ;; the sign in a word
- $5K ;; 5 ;; thousands by a letter
""",
    )
)

# --- where the answer stands ---

WITHOUT_BOX = (
    pairs(
        "flexible",
        r"""
- The value is .5 ;; 5 ;; the point belongs to the number
- we get .4. ;; 4 ;; a point before it and a full stop behind it
- .4 ;; 4 ;; the point belongs to the number
- the value is **.5** ;; 5 ;; a point in bold
- we pay 1 000 ;; 0 ;; a space separates thousands
- we pay 12 500 dollars ;; 500 ;; a space separates thousands
- 答案不是5 ;; 5 ;; denied in Chinese
- 答案是5万 ;; 5 ;; ten thousands
- 所以x=7 ;; 5 ;; another number
- 答案是5。 ;; 6 ;; another number
- 一共有12个苹果。 ;; 2 ;; the last digit
+ The value is .5 ;; 0.5 ;; a leading point
+ .4 ;; 0.4 ;; a leading point alone
+ we get .4. ;; 0.4 ;; a point before it and a full stop behind it
+ the value is **.5** ;; 0.5 ;; a point in bold
+ we pay 1 000 ;; 1000 ;; a space separates thousands
+ we pay 12 500 dollars ;; 12500 ;; a space separates thousands
+ 答案是5。 ;; 5 ;; stated in Chinese
+ 答案：3/4 ;; 0.75 ;; stated in Chinese, with a colon
+ 所以x=7 ;; 7 ;; a formula behind Chinese words
+ 一共有12个苹果。 ;; 12 ;; a number between Chinese words
""",
    )
    + pairs(
        "gsm8k flexible",
        r"""
- he pays 1 000 ;; 0 ;; a space separates thousands
+ he pays 1 000 ;; 1000 ;; a space separates thousands
""",
    )
    + pairs(
        "gsm8k strict",
        r"""
+ #### 10 000 ;; 10000 ;; a space separates thousands
- #### 10 00 ;; 10 ;; no thousands
""",
    )
)

# What a mathematician would say, and what the grader does not. Each says why it stays so; all but two err against the
# response.
KNOWN_LIMITS = pairs(
    "boxed",
    r"""
+ five ;; 5 ;; number words are words
+ 5 \text{ million} ;; 5000000 ;; number words are words
+ \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; (1,2) ;; a column is not read as a point
+ \langle 1,2 \rangle ;; \begin{pmatrix} 1 \\ 2 \end{pmatrix} ;; a column is not read as a point
+ xyz ;; zyx ;; three letters in a row are a word
+ f(x) = 2x ;; y = 2x ;; two names differ
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
- \boxed{A, B} ;; A ;; two letters in the box
- \boxed{A,B} ;; B ;; two letters in the box
- \boxed{A; B} ;; A ;; two letters in the box
- \boxed{\text{A}, \text{B}} ;; A ;; two letters in the box, upright
- \boxed{A}, \boxed{B} ;; B ;; two boxes
- It cannot be B ;; B ;; denied at the end
- It can't be B. ;; B ;; denied, shortened
- It must not be B ;; B ;; denied
- I would not choose B ;; B ;; denied choice
- Don't pick B ;; B ;; denied choice
- The wrong answer is B ;; B ;; the wrong one
+ Option C ;; C ;; an option alone
+ **Option C.** ;; C ;; an option alone, in bold
+ So, choice (C) ;; C ;; an option in brackets
+ It must be D! ;; D ;; an exclamation mark
+ D! ;; D ;; a letter and an exclamation mark
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

TABLES = {
    "LETTER_CASE": LETTER_CASE,
    "UPRIGHT": UPRIGHT,
    "BOXES": BOXES,
    "CUT_OUT": CUT_OUT,
    "CHARACTERS": CHARACTERS,
    "NEARLY": NEARLY,
    "WORDS_WITH_DIGITS": WORDS_WITH_DIGITS,
    "NONSENSE": NONSENSE,
    "FRACTIONS": FRACTIONS,
    "UNITS": UNITS,
    "SEPARATORS": SEPARATORS,
    "LATEX": LATEX,
    "PERCENTS": PERCENTS,
    "INTERVALS": INTERVALS,
    "SETS": SETS,
    "SIGNS": SIGNS,
    "ALGEBRA": ALGEBRA,
    "WORDS": WORDS,
    "STRICT": STRICT,
    "FLEXIBLE": FLEXIBLE,
    "GSM8K": GSM8K,
    "EXACT": EXACT,
    "LETTERS": LETTERS,
    "POWERS": POWERS,
    "POINTS": POINTS,
    "ALL_REALS": ALL_REALS,
    "NEGATED": NEGATED,
    "DEGREES": DEGREES,
    "PROSE": PROSE,
    "MARKED": MARKED,
    "AS_TEXT": AS_TEXT,
    "MORE_INTERVALS": MORE_INTERVALS,
    "MORE_SETS": MORE_SETS,
    "TUPLES": TUPLES,
    "MATRICES": MATRICES,
    "EQUATIONS": EQUATIONS,
    "POLYNOMIALS": POLYNOMIALS,
    "LOGARITHMS": LOGARITHMS,
    "COUNTS": COUNTS,
    "COMPLEX": COMPLEX,
    "DECIMALS": DECIMALS,
    "SHARES": SHARES,
    "AMOUNTS": AMOUNTS,
    "INDICES": INDICES,
    "SIGNS_BOTH": SIGNS_BOTH,
    "MORE_WORDS": MORE_WORDS,
    "EQUAL_NUMBERS": EQUAL_NUMBERS,
    "EQUAL_EXPRESSIONS": EQUAL_EXPRESSIONS,
    "EQUAL_GROUPS": EQUAL_GROUPS,
    "EQUAL_IN_PROSE": EQUAL_IN_PROSE,
    "SECOND_LOOK": SECOND_LOOK,
    "WITHOUT_BOX": WITHOUT_BOX,
    "CHOICES": CHOICES,
}
CORPUS = tuple(pair for table in TABLES.values() for pair in table)
