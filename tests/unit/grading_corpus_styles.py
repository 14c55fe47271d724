r"""Answers as models write them for GSM8K, MATH, AIME, OlympiadBench, MMLU and in Chinese. Written for this project.

The tables are those of ``grading_corpus_values``: the verdicts were set down before any grader saw the answers.
"""

from __future__ import annotations

from tests.unit.grading_corpus_values import table

BESIDE_A_BOX = table(
    "the box is the answer, whatever stands around it",
    "the box is a part of what is said",
    r"""
+ So she earns 18 * 2 = $36 a day.↵\boxed{36} ;; 36
+ 5 + 4 = 9↵↵\boxed{9}↵↵- checked: 9 - 4 = 5 ;; 9
+ Total cost: 3 * 7 = 21 → \boxed{21} ;; 21
+ ### Final Answer↵↵$\boxed{\dfrac{3}{4}}$ ;; 3/4
+ > **Answer:** $\boxed{12}$ ;; 12
+ 1. Compute.↵2. Add.↵3. \boxed{8} ;; 8
+ The remainder is $2^{10} \bmod 7$, i.e. $$\boxed{2}$$ ;; 2
+ $$x = \boxed{4}.$$ ;; 4
+ \[ n = 3 \cdot 5 = \boxed{15} \] ;; 15
+ Therefore, $p+q = 7+4 = \boxed{011}$. ;; 11
+ (final answer: \boxed{25}) ;; 25
+ the probability is \boxed{\frac{1}{6}}, as claimed ;; 1/6
+ <answer>\boxed{3}</answer> ;; 3
+ The final answer is: $\boxed{-7}$ ;; -7
+ Hence, $f(2)=\boxed{10}$; we are done. $\blacksquare$ ;; 10
+ She has \boxed{5} apples left ;; 5
+ Then we get the result of -4:↵\boxed{-4} ;; -4
+ It costs \$\boxed{12} ;; 12
+ 综上，答案为\boxed{6}。 ;; 6
+ 因此 $a+b=\boxed{13}$，选第二项 ;; 13
+ 所以最小值是$\boxed{\sqrt{2}}$，此时x=1 ;; \sqrt2
+ She blew the whistle 84 times \boxed{84} ;; 84
+ So they must row 14 times↵\boxed{14} ;; 14
+ That makes 22 times. \boxed{22} ;; 22
+ Wow, \boxed{42}!! ;; 42
+ The sum is \underline{\boxed{9}} ;; 9
+ \begin{align*}↵2x &= 8 \\↵x &= \boxed{4}↵\end{align*} ;; 4
+ | x | \boxed{4} | ;; 4
- It is 3 times \boxed{84} ;; 84
- The area is 5 times \boxed{5} ;; 5
- The answer is 84 times \boxed{21} ;; 21
- $\boxed{5}!!$ ;; 5
- $\boxed{5}!$ ;; 5
- $10^{\boxed{3}}$ ;; 3
- $\sqrt{\boxed{16}}$ ;; 16
- $\log_{\boxed{2}} 8$ ;; 2
- $\frac{\boxed{3}}{4}$ ;; 3
- $\boxed{3}/4$ ;; 3
- $3.\boxed{14}$ ;; 14
- $\boxed{3}.14$ ;; 3
- $\boxed{2}\pi$ ;; 2
- $\boxed{2}\sqrt{3}$ ;; 2
- $2\boxed{5}$ ;; 5
- $-\boxed{5}$ ;; 5
- $7-\boxed{5}$ ;; 5
- $(1, \boxed{2})$ ;; 2
- $\boxed{1}, 2, 3$ ;; 1
- $\boxed{x}+1$ ;; x
- $\boxed{5}^2$ ;; 5
- $\binom{\boxed{5}}{2}$ ;; 5
- $x \neq \boxed{5}$ ;; 5
- The answer is not \boxed{5} ;; 5
- The answer cannot be \boxed{5} ;; 5
- The answer is minus \boxed{5} ;; 5
- The answer is \boxed{5} million ;; 5
- The answer is \boxed{5} squared ;; 5
- The answer is half of \boxed{10} ;; 10
- The answer is \boxed{5} or 6 ;; 5
- 答案是\boxed{5}万 ;; 5
- 答案不是\boxed{5} ;; 5
- 答案是负\boxed{5} ;; 5
- $\sin \boxed{30}$ ;; 30
- $|\boxed{-5}|$ ;; -5
- $\boxed{3}\frac{1}{2}$ ;; 3
- $\boxed{3}e^x$ ;; 3
- $\boxed{1}i+2$ ;; 1
- $3\times\boxed{4}$ ;; 4
- $3 \times$↵$\boxed{4}$ ;; 12
""",
    grader="strict",
)

WITHOUT_A_BOX = table(
    "the last number or formula, as a whole",
    "a part of the last number or formula, or denied",
    r"""
+ She pays $5 + $7 = $12. ;; 12
+ The probability is .25 ;; 0.25
+ The probability is .25 ;; 1/4
+ Thus he walks 1 500 metres. ;; 1500
+ The population is 2 345 678. ;; 2345678
+ In total: 1,234.50 dollars ;; 1234.5
+ That makes 22 times.↵22 ;; 22
+ He jumps 22 times↵22 ;; 22
+ 所以一共有24个。 ;; 24
+ 因此答案是 $\frac{2}{3}$。 ;; 2/3
+ 答案：12 ;; 12
+ 答案为-3 ;; -3
+ 最终答案：$x=2$ ;; 2
+ The answer is $2\sqrt{3}$. ;; 2\sqrt3
+ Answer: -4/5 ;; -0.8
+ **Final answer: 17** ;; 17
+ Hence the answer is 3, as required. ;; 3
+ So $\gcd(12,18)=6$. ;; 6
+ We conclude that \(k = 9\). ;; 9
+ The number of ways is $\binom{5}{2} = 10$. ;; 10
+ So she needs 3/4 of a cup. ;; 3/4
+ Thus the angle is 60°. ;; 60
+ She spent 20 dollars. ;; 20
- The probability is .25 ;; 25
- He scored .4 ;; 4
- The population is 2 345 678. ;; 678
- Thus he walks 1 500 metres. ;; 500
- It is 3 times↵22 ;; 22
- The answer is $2^{10}$. ;; 10
- The answer is 3 million. ;; 3
- It is minus 5 ;; 5
- It is not 5 ;; 5
- The answer is 3 squared ;; 3
- The value is 2π ;; 2
- The answer is 5 or 6 ;; 6
- The answer is 5 or 6 ;; 5
- 答案是5万 ;; 5
- 答案不是5 ;; 5
- 答案是5或6 ;; 5
- The time is 3:30 ;; 30
- The ratio is 3:4 ;; 4
- So we get x^2 = 9 ;; 9
- So B12 ;; 12
- The answer is 1/2 ;; 2
- It is less than 7 ;; 7
- She pays between 5 and 7 ;; 7
- The final answer is 10^5 ;; 5
- So $n = 7!$ ;; 7
- The answer is 5i ;; 5
- The value is 3.5e4 ;; 3.5
- The answer is √2 ;; 2
- The answer is (3, 4) ;; 4
""",
    grader="flexible",
)

SIGNS_OF_NAMES = table(
    "equal for all values of the names",
    "equal for some signs of the names",
    r"""
- \sqrt{a^2} ;; a
- \sqrt{a^2b^2} ;; ab
- |a-b| ;; a-b
- |a-b|+|b-c| ;; |a-c|
- \sqrt{(a-b)^2} ;; b-a
- |mn| ;; mn
- \max(a,b) ;; \frac{a+b+a-b}{2}
- \frac{|a|}{a} ;; 1
- |a+b+c| ;; a+b+c
- \sqrt{a^4b^2} ;; a^2b
- |uvw| ;; uvw
- |p||q|r ;; pq|r|
- \sqrt{x^2+2xy+y^2} ;; x+y
- a|b| ;; |a|b
- \ln(x^2) ;; 2\ln x + \ln 1 + x - |x|
+ \sqrt{x^2+2xy+y^2} ;; |x+y|
+ \sqrt{a^4b^2} ;; a^2|b|
+ |a-b| ;; |b-a|
+ |abc| ;; |a||b||c|
+ |a|^2 ;; a^2
+ (a-b)^2 ;; (b-a)^2
+ \frac{a^2-b^2}{a-b} ;; a+b
+ \frac{x}{y}+\frac{y}{x} ;; \frac{x^2+y^2}{xy}
+ -\frac{a}{b} ;; \frac{-a}{b}
+ \frac{1}{1-x} ;; -\frac{1}{x-1}
""",
)

BETWEEN_ANSWERS = table(
    "several answers, whatever separates them",
    "one of several answers",
    r"""
+ x=3\text{, }x=5 ;; 3,5
+ x=3\text{ , }x=5 ;; 3,5
+ x=3\text{; }x=5 ;; 3,5
+ 3\text{, }5 ;; 3,5
+ x=3 \text{ and } x=5 ;; 3,5
+ x=3\text{, or }x=5 ;; 3,5
+ x=3 \;\text{or}\; x=5 ;; 3,5
+ x=-2 \text{ 或 } x=3 ;; -2,3
+ x=-2或x=3 ;; -2,3
+ -2和3 ;; -2,3
+ x_1=2, x_2=7 ;; 2,7
+ x_1 = 2 \qquad x_2 = 7 ;; 2,7
+ \{2, 7\} ;; 7,2
+ x \in \{2, 7\} ;; 2,7
+ x=3 \vee x=5 ;; 3,5
+ 3 \text{ or } 5 ;; 5,3
+ a=1, b=2 ;; (1,2)
- x=3\text{, }x=5 ;; 5
- x=3\text{, }x=5 ;; 3
- x=3 \vee x=5 ;; 5
- x=3 \cup x=5 ;; 5
- x=3 \wedge y=5 ;; 5
- x=3 \to x=5 ;; 5
- x=3 \mid x=5 ;; 5
- x=3 / x=5 ;; 5
- x=3 \& x=5 ;; 5
- x=3 \implies y=5 ;; 5
- x=3 \iff y=5 ;; 5
- x=3 \therefore x=5 ;; 5
- x=3 \hspace{1em} x=5 ;; 5
- x=3 \text{ then } x=5 ;; 5
- x=3 \text{ but } x=5 ;; 5
- x=3 . x=5 ;; 5
- x=3 \newline x=5 ;; 5
- x=3 | x=5 ;; 5
- x=3或x=5 ;; 5
- x=3 ; 5 ;; 5
- 3=5 ;; 5
- 2+2=5 ;; 5
- x=3=5 ;; 5
- \text{3, 5} ;; 5
- x=3 \ \text{and} \ y=5 ;; 5
""",
)

NAMED_SUMS = table(
    "a combination of names, and its value",
    "an equation to be solved, another value, or another equation",
    r"""
+ m+n=17 ;; 17
+ m + n = 17 ;; 17
+ p+q+r=110 ;; 110
+ a+b+c=12 ;; 12
+ x_1+x_2=5 ;; 5
+ m-n=3 ;; 3
+ 100m+n=345 ;; 345
+ x+y=17 ;; 17-x=y
+ m+n=\boxed{17} ;; 17
- m+n=17 ;; 71
- m+1=17 ;; 17
- 2m=17 ;; 17
- m+m=17 ;; 17
- 17 ;; x+y=17
- m+n=17 ;; x+y=17
- x+y=17 ;; x-y=17
- 3-m=17 ;; 17
- m+n=m+17 ;; 17
- m+n<17 ;; 17
- m+n\ne 17 ;; 17
- m+n=17, m-n=3 ;; 17
- x^2+y^2=25 ;; 5
- |x|+|y|=17 ;; 17
- x+i=17 ;; 17
- e+\pi=17 ;; 17
- m+n=17+p ;; 17
- not m+n=17 ;; 17
""",
)

WORDS_AFTER = table(
    "a unit or what is counted",
    "a word that changes the number",
    r"""
+ 12\text{ cm} ;; 12
+ 12\ \mathrm{cm}^2 ;; 12
+ 45\text{ mph} ;; 45
+ 3\text{ hours} ;; 3
+ 5.5\text{ kg} ;; 5.5
+ 180\text{ minutes} ;; 3\text{ hours}
+ 2500\text{ m} ;; 2.5\text{ km}
+ 0.5\text{ kWh} ;; 500\text{ Wh}
+ 75\text{ cents} ;; \$0.75
+ 12\text{ apples} ;; 12
+ 30^\circ ;; 30
+ 25\% ;; 25
+ 12\text{ square units} ;; 12
+ 12厘米 ;; 12
+ 12元 ;; 12
+ 8个 ;; 8
+ 3\,\Omega ;; 3\text{ ohms}
+ 2\text{ eV} ;; 2
+ 6\text{ people} ;; 6
+ 40 miles per hour ;; 40
- 5\text{ squared} ;; 5
- 5\text{ to the fourth} ;; 5
- 5\text{ quintillion} ;; 5
- 5\text{ lakh} ;; 5
- 5\text{ gross} ;; 5
- 5\text{ score} ;; 5
- 5\text{ halves} ;; 5
- 5\text{ sevenths} ;; 5
- 5\text{ and a half} ;; 5
- 5\text{ plus }x ;; 5
- 5\text{ reciprocal} ;; 5
- 5\text{ factorial} ;; 5
- 5\text{ choose }2 ;; 5
- 5\text{ modulo }3 ;; 5
- 5\text{ mod }3 ;; 5
- 5\text{ or more} ;; 5
- 5\text{ at least} ;; 5
- 5\text{ undefined} ;; 5
- 5\text{ negative} ;; 5
- 5\text{ false} ;; 5
- 5\text{ wrong} ;; 5
- 5\text{ approximately }6 ;; 5
- 5\text{ hundredths} ;; 5
- 5\text{ googol} ;; 5
- 5\text{ times} e ;; 5
- 5万 ;; 5
- 5亿 ;; 5
- 5倍根号二 ;; 5
- 5平方 ;; 5
- 5\text{ km} ;; 5\text{ m}
- 5\text{ kg} ;; 5\text{ g}
- 5\text{ hours} ;; 5\text{ minutes}
- 12\text{ cm}^2 ;; 12\text{ cm}
- \$0.75 ;; 75\text{ dollars}
""",
)

DIGITS_OF_A_BASE = table(
    "the same number",
    "other digits or another base",
    r"""
+ 1011_2 ;; 1011_2
+ 1011_2 ;; 1011_{2}
+ 1011_{\text{two}} ;; 1011_2
+ 2B_{16} ;; 2B_{16}
+ 1234 ;; 1234_5
- 1234_{5} ;; 1234
+ (1234)_5 ;; 1234_5
+ 1\,011_2 ;; 1011_2
- 1011_2 ;; 1101_2
- 1011_2 ;; 11
- 11_{10} ;; 11_2
- 2B_{16} ;; B2_{16}
- 120_3 ;; 102_3
- 129_8 ;; 129
- 1011_3 ;; 1011_2
- 210_2 ;; 210
- AB_{16} ;; BA_{16}
- DEAD_{16} ;; DADE_{16}
""",
)

RIGHT_IN_OTHER_FORMS = table(
    "the same answer in another form",
    "a false neighbour of it",
    r"""
+ x \equiv 3 \pmod 7 ;; x\equiv 3\pmod{7}
+ 3 \pmod{7} ;; x\equiv 3 \bmod 7
+ 10 \pmod 7 ;; 3 \pmod 7
+ \text{Monday.} ;; \text{Monday}
+ \text{No solution.} ;; \text{no solution}
+ \begin{cases} x=1 \\ y=2 \end{cases} ;; x=1, y=2
+ \begin{aligned} x&=1 \\ y&=2 \end{aligned} ;; (1,2)
+ P(A \cap B) = \frac16 ;; 1/6
+ P(X \ge 2) = 0.4 ;; \frac{2}{5}
+ \angle ABC = 60^\circ ;; 60^\circ
+ AB = 5 ;; 5
+ |\vec{a}| = \sqrt{5} ;; \sqrt5
+ (1,2) \text{ or } (2,1) ;; (1,2),(2,1)
+ (1,2) \text{ and } (2,1) ;; (2,1),(1,2)
+ \textbf{(B)}\ 7 ;; 7
+ \text{(B) } 7 ;; B
+ 2:3 ;; 4:6
+ x > 3 ;; (3, \infty)
+ 3 < x ;; x>3
+ x \geqslant 2 ;; [2,+\infty)
+ -1 \le x < 4 ;; [-1,4)
+ x<-1 \text{ or } x>1 ;; (-\infty,-1)\cup(1,\infty)
+ \mathbb{R} \setminus \{0\} ;; (-\infty,0)\cup(0,\infty)
+ x \neq 0 ;; x\ne0
+ S_{\triangle ABC} = 6 ;; 6
+ \cos A = \frac{1}{2} ;; \frac12
+ a_n = 2n+1 ;; 2n+1
+ f(x) = x^2+1 ;; x^2+1
+ \dfrac{\sqrt{6}+\sqrt{2}}{4} ;; \frac{\sqrt2+\sqrt6}{4}
+ \frac{1}{\sqrt{2}} ;; \frac{\sqrt{2}}{2}
+ y = 2x+3 ;; 2x - y + 3 = 0
+ \log_2 8 ;; 3
- x \equiv 3 \pmod 7 ;; x \equiv 3 \pmod{11}
- 3 \pmod 7 ;; 4 \pmod 7
- 3 \pmod 7 ;; 3
- \begin{cases} x=2 \\ y=1 \end{cases} ;; x=1, y=2
- \begin{cases} x=1 \\ y=2 \end{cases} ;; x=1
- P(X \ge 2) = 0.4 ;; 0.6
- (1,2) \text{ or } (2,1) ;; (1,2)
- (1,2) ;; (2,1)
- \textbf{(B)}\ 7 ;; 8
- 2:3 ;; 3:2
- 2:3:4 ;; 2:4:3
- x > 3 ;; [3,\infty)
- x > 3 ;; x < 3
- -1 \le x < 4 ;; (-1,4]
- x<-1 \text{ or } x>1 ;; (-1,1)
- x \neq 0 ;; 0
- x \ne 0 ;; x=0
- \mathbb{R} ;; \mathbb{R}\setminus\{0\}
- \cos A = \frac{1}{2} ;; -\frac12
- y = 2x+3 ;; 2x + y + 3 = 0
- a_n = 2n+1 ;; 2n-1
- \frac{1}{\sqrt{2}} ;; \frac{1}{2}
- |x| = 5 ;; 5
- 2x = 10 ;; 10
- \text{No solution} ;; \text{One solution}
- \sqrt{x} = 3 ;; 3
- \sin x = 1 ;; 1
""",
)


LETTERS_IN_STYLES = table(
    "the letter that is chosen",
    "another letter is chosen, or none",
    r"""
+ 答案是B ;; B
+ 答案：B ;; B
+ 答案: (B) ;; B
+ 答案为 C。 ;; C
+ 因此，正确答案是 D。 ;; D
+ 故选B ;; B
+ 所以选C。 ;; C
+ 选B ;; B
+ 应选 A。 ;; A
+ 本题选D ;; D
+ 正确选项是A ;; A
+ 答案应该是B，因为它最大。 ;; B
+ 选项B是正确的。 ;; B
+ B选项正确 ;; B
+ 答案不是A，而是B。 ;; B
+ 因此答案选**C** ;; C
+ 综上所述，答案为\boxed{D} ;; D
+ 我选择B。 ;; B
+ The answer is not A but B. ;; B
+ The answer is not A, but rather (C). ;; C
+ The correct answer is not B but D ;; D
+ ANSWER: C ;; C
+ Therefore the correct choice is (D). ;; D
+ **Answer: (A)** because of symmetry ;; A
+ \boxed{\text{C}} ;; C
+ The best option is B. ;; B
+ It must be C. ;; C
+ Let me think... Answer: b ;; B
+ I'd go with D. ;; D
+ Option A is correct. ;; A
+ My answer is A, not B. ;; A
+ The answer is B. Option A is wrong. ;; B
- 答案不是B ;; B
- 不选B ;; B
- 不能选B ;; B
- 排除B ;; B
- 选项B是错误的 ;; B
- 答案是A或B ;; B
- 答案是A或B ;; A
- 答案是B和C ;; B
- 答案不是A，而是B。 ;; A
- 选A还是选B？ ;; C
- 故不选D ;; D
- 答案不可能是C ;; C
- 维生素B ;; B
- B选项错误 ;; B
- The answer is not A but B. ;; A
- The answer is not B ;; B
- The answer is neither A nor B ;; B
- It is not the case that the answer is B. ;; B
- It is not true that the answer is B. ;; B
- I don't think the answer is B. ;; B
- I doubt that the answer is B. ;; B
- The answer is A or B ;; A
- The answer is A and B ;; B
- The answer could be A, B, or C ;; C
- \boxed{A \text{ or } B} ;; A
- \boxed{A,C} ;; A
- \boxed{A}, \boxed{C} ;; C
- The answer isn't C ;; C
- Option B is incorrect. ;; B
- Vitamin C ;; A
- The answer is a mystery ;; A
- I am not sure. ;; A
- If the answer is B, then x is 3, which is wrong. ;; B
- Nobody would say that the answer is B ;; B
- It is false that the answer is D. ;; D
- The answer is everything but D ;; D
- The answer is all except A ;; A
""",
    grader="choice",
)

MORE_LETTERS = table(
    "the letter that is chosen",
    "denied, supposed, or several",
    r"""
+ 正确的是C ;; C
+ 答案：**D** ;; D
+ 因此选(A) ;; A
+ 所以答案就是B ;; B
+ 【答案】C ;; C
+ 答案：\boxed{C} ;; C
+ 综上，选项C正确。 ;; C
+ 排除A、B，故选D。 ;; D
+ A不正确，B不正确，所以选C。 ;; C
+ The answer is not (B), but (A). ;; A
+ I doubted B at first. The answer is C. ;; C
+ If x is 3, the answer is B. ;; B
+ It's not A. The answer is B. ;; B
+ I am not sure, but the answer is B. ;; B
+ We cannot assume that. The answer is D. ;; D
+ Answer: B. This is not A. ;; B
+ Since no other option fits, the answer is C. ;; C
+ I think the answer is A. ;; A
+ There is no doubt that the answer is B. ;; B
+ I don't doubt that the answer is B. ;; B
+ I don't think the answer is A.↵C ;; C
+ If the answer is B, x is 3, a contradiction.↵So it must be **C**. ;; C
+ 不选A。↵B ;; B
- 正确的不是C ;; C
- 选项A和B都正确 ;; A
- 答案不应该是B ;; B
- 答案可能是A、B或C ;; C
- 如果选B，则矛盾。 ;; B
- 不应选择B ;; B
- 没有选B的理由 ;; B
- 答案并非B ;; B
- 选A、B ;; A
- 选AB ;; A
- B不正确 ;; B
- 我们没有足够的信息来选A ;; A
- 错误答案是B ;; B
- 答案是错误的，不是B ;; B
- Assuming the answer is C, we get a contradiction. ;; C
- Suppose the answer is A. ;; A
- Whether the answer is A is unclear. ;; A
- It isn't clear that the answer is A. ;; A
- We would be wrong to say the answer is A. ;; A
- I do not agree that the answer is B. ;; B
- It can't be that the answer is D. ;; D
- The wrong answer is B ;; B
- Some say the answer is B, but they are mistaken. ;; B
""",
    grader="choice",
)

CHINESE_AND_SUMS = table(
    "the same value",
    "another value, or an equation",
    r"""
+ 5\text{厘米} ;; 5
+ 5平方米 ;; 5\text{ m}^2
+ 3千米 ;; 3000\text{ m}
+ \frac{1}{2}小时 ;; 30\text{ minutes}
+ x=1，y=2 ;; (1,2)
+ (1,2)或(2,1) ;; (1,2),(2,1)
+ x<1或x>2 ;; (-\infty,1)\cup(2,\infty)
+ \alpha+\beta=3 ;; 3
+ 2x+3y=12 ;; 12
+ a+b+c+d=\frac{7}{2} ;; 3.5
+ m+n=1{,}024 ;; 1024
- 5平方米 ;; 5\text{ m}
- 5年级 ;; 5
- 5次方 ;; 5
- 第5个 ;; 15
- 5千 ;; 5
- 5千克 ;; 5\text{ g}
- 5百 ;; 5
- 5分之1 ;; 5
- 5的平方 ;; 5
- 3米或5米 ;; 5
- x<1或x>2 ;; (1,2)
- 3或5 ;; 35
- 3和5 ;; 8
- (1,2)或(2,1) ;; (2,1)
- x+y=17 ;; 16
- x+y=z ;; 0
- -x+y=17 ;; -17
- x+y=5, x-y=1 ;; 5
- 2x+3x=10 ;; 10
- i+j=5 ;; 5
- x+y=5 \text{ or } 6 ;; 5
- x+y\approx 5 ;; 5
- m+n=17\text{ cm} ;; 17\text{ m}
""",
    grader="boxed",
)

HOW_OFTEN = table(
    "how often is said again",
    "a factor, or another number",
    r"""
+ He drinks 3 cups 4 times \boxed{4} ;; 4
+ 她一共跑了\boxed{84}米 ;; 84
+ So it rained 1,000 times \boxed{1000} ;; 1000
- The result is 4 times \boxed{4} ;; 4
- x is equal to 4 times \boxed{4} ;; 4
- He drinks 3 times \boxed{4} ;; 4
- $4$ times $\boxed{4}$ ;; 4
- 2 * 4 times \boxed{4} ;; 4
- We multiply 4 times \boxed{4} ;; 4
- We need 5 times \boxed{4} ;; 4
""",
    grader="strict",
)

ACROSS_SENTENCES = table(
    "a sentence ends between the word and the number",
    "the word changes the number",
    r"""
+ She has 5. Half of them are red. ;; 5
+ She has 5. Thousand thanks! ;; 5
+ He went 3 times. 3 ;; 3
- It is 4 times 4 ;; 4
- It is 4 times↵4 ;; 4
- She has 5 thousand ;; 5
- She has 5 half ;; 5
- The value is not↵5 ;; 5
- He went 3 times 4 ;; 4
- It is not 5. ;; 5
- It is minus 5! ;; 5
- We have three times 5. ;; 5
- So there is not 5.↵ ;; 5
""",
    grader="flexible",
)

STYLES = (
    *BESIDE_A_BOX,
    *WITHOUT_A_BOX,
    *SIGNS_OF_NAMES,
    *BETWEEN_ANSWERS,
    *NAMED_SUMS,
    *WORDS_AFTER,
    *DIGITS_OF_A_BASE,
    *RIGHT_IN_OTHER_FORMS,
    *CHINESE_AND_SUMS,
    *HOW_OFTEN,
    *ACROSS_SENTENCES,
)
CHOICES_IN_STYLES = (*LETTERS_IN_STYLES, *MORE_LETTERS)
