r"""Texts around a box, which is □ here: those that leave it an answer, and those that make it a part of a formula; ↵ is
a line's end.
"""

from __future__ import annotations


def _texts(table: str) -> tuple[str, ...]:
    return tuple(line.replace("↵", "\n") for line in table.strip("\n").split("\n"))


# Whatever the box holds, it is the answer.
ALONE = _texts(
    r"""
□
12 * 25 = 300↵□
... and 3 -↵□
3 +↵□
3 =↵□
x^↵□
costs $↵□
50%↵□
□↵- 12 + 30 = 42
□↵+ 12
□↵300
□↵↵- 12
□↵/ 2
□↵^2
□↵x
□↵i
*□*
**□**
***□***
_□_
__□__
`□`
"□"
'□'
“□”
(□)
[□]
{□}
Answer -□
Answer - □
Answer: □
Answer:□
Answer□
Answer — □
Answer – □
Answer -- □
Answer=□
**Answer:** □
**Answer:**□
**Answer: □**
**Answer**: □
**Answer**□
*Answer:* *□*
- □
* □
+ □
1. □
12) □
(3) □
a) □
(a) □
(a)□
> □
# □
### □
### Answer: □
#### □
####□
| □ |
| Answer | □ |
|Answer|□|
$□$
$ □ $
$$□$$
$$↵□↵$$
\(□\)
\( □ \)
\[□\]
\[ □ \]
\[↵□↵\]
\[x = 12 * 25↵□\]
\[12 * 25 = 300 \\ □\]
\[12 * 25 = 300 \quad □\]
\[12 * 25 = 300, □\]
\[ 12 * 25 = 300↵□↵\]
**$□$**
*$□$*
$**□**$
□.
□!
□?
□;
□,
□:
□...
$□$.
$□.$
**□.**
**□**.
x = □
$x = □$
$x = □.$
x \approx □
$x \approx □$
so $x=3+2=□$, as was asked
We get $3$ and $□$
Final: 3 + 2 = □
$\$□$
\$□
$□
$□ and that's it.
-> □
=> □
→ □
\therefore □
$\therefore □$
\implies □
$\Rightarrow□$
\text{Answer: }□
$\text{Answer: }□$
$\text{Answer: □}$
\textbf{□}
$\mathbf{□}$
\begin{align}↵x &= 3 \\↵&= □↵\end{align}
\begin{align*} x &= □ \end{align*}
$\begin{aligned} x &= □. \end{aligned}$
<answer>□</answer>
<b>□</b>
The answer is **□
The answer is *□
□ (see above)
(so the answer is □)
"the answer is □"
□ - that is the answer
□ — done
□ I think
答案是□。
答案：□
答案为**□**。
因此，$x=□$。
（□）
\[100 - 10 = □\]integers which are not
It equals 2 + 3 = □ (or five).
1.↵□
Step 3: □
Step 3. □
Question 3 □
{"answer": "□"}
```↵□↵```
□ = 2 + 3
$□ = x$
x=□=y
$k \ge □$
\□
□ or so
□\checkmark
□ ✓
✅ □
🎉□🎉
The final answer is $□$!
The final answer is $□$: five.
□, not 6.
□, 3 of which are red
~□~
~~3~~ □
***Answer:*** ***□***
\large□
$\displaystyle□$
$\left(□\right)$
\color{red}{□}
\textcolor{red}{□}
$\{□\}$
\boxed{□}
$\boxed{\text{Answer: }□}$
\underline{□}
<p>Total: 3 + 2 = <b>5</b></p>↵<p>□</p>
Let $f(x) = 2$. □
Thus, f(2)=5. □
It costs $3 + $2 = $□$.
It costs $3 + $2 = $□.
Profit: $8 - $3 = □
x - 3 = 2 ⟹ x = □
* Answer: □
- **Answer:** □
  - □
1) Answer: □
"""
)

# A number in the box is the answer, with or without its unit.
WITH_UNIT = _texts(
    r"""
□ dollars
□ apples
$□$ apples
$□$apples
□\text{ apples}
$□\text{ apples}$
□\text{ cm}
$□\,\text{cm}$
□cm
□ cm
□^\circ
$□^{\circ}$
□°
□%
□\%
□ a day
□/day
□ per day
□-year-old
所以共有□个苹果
$17 \equiv □ \pmod{12}$
Answer: $□$ (dollars)
$$□$$ dollars
"""
)

# The box is no answer, or not all of it.
PART = _texts(
    r"""
2^{□}
$2^{□}$
2^□
0.□
$0.□$
0.$□$
□i
$□i$
$□ i$
$□$i
□ i
□x
$□x$
$3□$
$3 □$
3□
x□
-□
$-□$
-$□$
x = -□
x is -□
The answer is -□.
The answer is -$□$.
The answer: -□
−□
x = − □
$x = - □$
The answer is - □
3 - □
x - □
$x - □$
3 + □
3+□
3 * □
3*□
3**□
3 / □
3/□
3 × □
3 \cdot □
$3 \times □$
\sqrt{□}
\sqrt□
$\sqrt{□}$
\sqrt[□]{2}
\sqrt[3]{□}
\frac{□}{2}
\frac{2}{□}
\frac{1}{2}□
x_{□}
x_□
□_x
□^2
□^{2}
$□^2$
$□!$
□! = 120
□/2
□ / 2
□+2
□ + 2
□-2
□ - 2
□ - x
□*2
□ * 2
□**2
□ × 2
□\times10^3
□e3
□\cdot 2
□\pi
□π
□\sqrt{2}
□√2
(□)^2
f(□)
2(□)
□(x+1)
$□ (x+1)$
(3, □)
(□, 3)
$(3, □)$
$(□, 3)$
[3, □]
P(X=□)
|□|
\log_2□
\log_2 □
\log □
log □
\sin□
\ln(□)
\lfloor □ \rfloor
\binom{□}{2}
\binom{7}{□}
\overline{□}
□,000
□,6
1,□
□.5
□0
1□
$1$□
□:30
12:□
□ million
□ thousand
$□$ million
□\text{ million}
□ squared
□ hundred
□ 1/2
□\frac{1}{2}
□ 000
not □
The answer is not □
The answer isn't □
It can't be □
It cannot be □
x \ne □
x != □
x ≠ □
$x \neq □$
minus □
negative □
\pm□
$\pm □$
±□
□ or 6
□ plus 3
□ minus 3
□ times 3
□ mod 3
□ \bmod 3
□ x 3
\boxed{□+1}
\boxed{-□}
\boxed{2^{□}}
\boxed{□}^2
\sum_{i=1}^{□} i
\int_0^{□} x
e^{□}
10^{-□}
10^{□}
\vec{□}
\cancel{□}
$x = 2 + ↵□$
\[x = 2 +↵□\]
\[□↵+ 3\]
\[□↵\cdot 3\]
\[-↵□\]
$$2 \cdot↵□$$
2^{↵□}
\frac{↵□}{2}
2**□**
x*□*y
答案不是□
答案是负□
□万
□分之一
-**□**
x = -**□**
- **-□**
2^**□**
x=-"□"
$□, 6$
□\mathrm{i}
□\text{i}
$□e^{2}$
□\ln 2
2\,□
$2\,□$
$2~□$
$x^2□$
$a□$
$\alpha□$
\pi□
$2\left(□\right)$
$\left(□\right)^2$
$□'$
\{3, □\}
$\{3, □\}$
3:□
3 : □ = x
$1 : □$
twice □
half of □
□^{th}
□\!\times 2
□~\text{million}
-(□)
2^(□)
2 ^ □
- 3 □
□²
1/□
50\% of □
1 + □ = 6
□ \div 2
\dfrac{□}{3}
\tfrac{1}{□}
\mathbb{Z}_{□}
a_{n+□}
\sqrt{2}□
\sqrt{2} □
□\overline{3}
0.\overline{□}
0.3□
□ \times
"""
)
