"""Which characters make a word segment a token: a frozen table of Unicode 12.1 code points.

Letters, digits, ideographs, kana, Hangul, South-East Asian scripts and the pictographs of that Unicode version, as the
``StandardTokenizer`` of Lucene 9 emits them. The table is frozen on purpose: the property tables of the interpreter and of
the ``regex`` package follow newer Unicode versions (new letters, and a much smaller set of pictographs), with which some
documents would get other tokens and searches another order. Each entry is ``gap+extra`` in base 36: the distance from the end
of the previous range to the start of this one, and how many more code points the range has.
"""

from __future__ import annotations

_ENCODED = """
1c+9 8+p 7+p 1b+1 4 7 5 6+m 2+u 2+db 7+6 8+j 35+4 2+1 3+3 2 7 2+2 2 2+j 2+2a 2+3u 9+4l 2+11 3 2+1 2 2+14 20+q 5+4 19+16 m+9 2
3+1 2+2q 2 g+1 8+e 3 h 2+t u+2g c f+16 a+1 5 6+l 5 a 4 o+o 8+a 1i+k 2+7 1z+1h 4 j 8+9 5+9 2+f 5+7 3+1 3+l 2+6 2 4+3 4 h e+1 2+2
5+b b 9+5 5+1 3+l 2+6 2+1 2+1 2+1 w+3 2 8+9 3+2 h+8 2+2 2+l 2+6 2+1 2+4 4 j g+1 5+9 a c+7 3+1 3+l 2+6 2+1 2+4 4 v+1 2+2 5+9 2 i
2+5 4+2 2+3 4+1 2 2+1 4+1 4+2 4+b n m+9 m+7 2+2 2+m 2+f 4 r+2 6+1 5+9 h 5+7 2+2 2+m 2+9 2+4 4 x 2+1 5+9 2+1 j+7 2+2 2+14 3 h 6+2
9+2 5+9 b+5 6+h 4+n 2+8 2 3+6 w+9 i+1l 6+e 2+9 14+1 2 2+4 2+n 2 2+m 3+4 2 2+5 3+9 3+3 x w+9 n+7 2+z s+4 38+21 7+39 2 6 3+16 2+98
2+3 3+6 2 2+3 3+14 2+3 3+w 2+3 3+6 2 2+3 3+e 2+1k 2+3 3+1u 12+f h+2d 3+5 4+h7 3+g 2+p 6+22 4+a 8+c 2+3 f+h f+h f+c 2+2 g+2b 4
5+1 3+9 13+9 7+2g 8+4 3+x 2 6+1x b+u 14+13 3+4 c+17 5+p 7+a 4+1 x+m a+1q 2+s 4+9 7+9 7+d 2g+1a i+6 5+9 16+t e+1j r+z t+9 4+1c
3+8 8+16 3+2 16+3 2+5 2+1 4 6+5b 1t+7p 3+5 3+11 3+5 3+7 2 2 2 2+u 3+1g 2+6 2 4+2 2+6 4+3 3+5 5+c 6+2 2+6 1s d 14 e h+c 2u 5 3+9
2 4+4 5 2 2 2 2+3 2+a 3+3 6+4 5 i+14 c+5 g+1 a8+1 d 2o 1z q+a 5+2 58+1f 5d+1 b a 1n+3 2+5 2+b 2+35 b+39 3+a 2 2 7 4 7 b+1 g 3 5
2 5+2 2 c+4 1a+2 a f f ad+1 cw+2 k+1 1g 5 4r+1a 2+1a 2+3o 7+3 4+1 d+11 2 6 3+1j 8 h+m a+6 2+6 2+6 2+6 2+6 2+6 2+6 2+6 29 29+p
2+2g d+5x 1c 2 q+8 7+5 3+5 4+2d 5+2n 2+3 6+16 2+2l i+q 1i+f 48 2 1j+1a 2+2f 4p+52t 23+g6n h+wc 1w+19 3+7g 4+r l+1a h+u 3+27
14+4o 3+4 1d+a 2+2 2+3 2+m u+1f f+1d t+9 p+5 4 2+1 2+11 b+m q+s 8+1a t+a 7+u 2+14 o+2 2+7 5+9 7+2q p+f 8+2 d+5 3+5 3+5 a+6 2+6
2+1j 9+36 e+9 7+8mb d+m 5+1c 6it+a5 3+2x 13+6 d+4 6 2+9 2+c 2+4 2 2+1 2+1 2+2z y+a2 j+1r 3+1h 15+b 39+4 2+3q k+9 8+p 7+p c+1j
3+u 4+5 3+5 3+5 3+2 10+b 2+p 2+i 2+1 2+e 3+d z+3e 1y+1g 7g+s 4+1c 1c+v e+t 6+11 b+t 3+z 5+7 2+4 17+4d 3+9 7+z 5+z 5+13 9+1f
4d+8m a+l b+7 49+5 3 2+17 2+1 4 3+m b+m a+u 1u+i 2+1 b+l b+p 1z+1j 7+1 1t g+3 2+2 2+s 17+s 4+s 10+7 2+r s+1h b+l b+i e+h 33+20
1k+1e e+1e e+z d+9 cn+s b 9+l 4b+m d+1g 1b+9 k+18 x+o 8+9 a+z g+9 5 c+y 4 d+1b f+3 c+a 2 10+h 2+o 2d+6 2 2+3 2+e 2+9 8+1a i+9
c+7 3+1 3+l 2+6 2+1 2+4 4 j d+4 4f+1g j+3 6+9 6 x+1b l+1 2 9+9 4n+1a 16+3 11+1b l c+9 13+16 e 8+9 1j+q 3+e 5+b 4 5d+17 39+21 m
4h+7 3+12 h 2 t b+13 8 m c+19 k z+1k 7c+8 2+10 i g+9 p+t 35+6 2+1 2+11 m a+9 7+5 2+1 2+v f 8+9 8n+i 7i+pl 2v+32 i+5f 24d+tq
34i+g6 6nu+fs 8+u 2+9 2v+t j+1b h+3 d+9 a+k 6+i j5+1r 3l+22 6 1v+c 1t+1 2 cnx+7y 1e+2 i+3 23d+2y 6+c 4+8 8+9 4mf+2c 2+1y 2+1 3
3+1 3+3 2+b 2 2+6 2+1s 2+3 3+7 2+6 2+r 2+3 2+4 2 4+6 2+9f 3+o 2+o 2+u 2+o 2+u 2+o 2+u 2+o 2+u 2+o 2+7 3+1d 1s1+18 b+6 3+9 5
aa+17 5+9 zr+5g 1o+1v 8 5+9 x3+3 2+q 2+1 2 3 2+9 2+3 2 2 7 5 2 2 2+2 2+1 2 3 2 2 2 2 2+1 2 3+3 2+6 2+3 2+3 2 2+9 2+g 6+2 2+4 2+g
91+73 e+2 w+q 7+p 3+t 5 3+9 j+1k r+f b l 3+8 2+3 a+l0 9+7d 1d+3j 39+b 2e+16 d+3 1l+7 b+5 15+7 v+29 d+1a 2+9 2+1bq
"""

_BEYOND_TABLE = ((0x20000, 0x3FFFD),)
"""Supplementary ideographic planes: every character there is a token of its own."""


def token_ranges() -> list[tuple[int, int]]:
    """Inclusive code-point ranges, ascending, within U+0021..U+1FFFF plus the ideographic planes above."""
    ranges: list[tuple[int, int]] = []
    last = 0
    for entry in _ENCODED.split():
        gap, _, extra = entry.partition("+")
        start = last + int(gap, 36)
        last = start + (int(extra, 36) if extra else 0)
        ranges.append((start, last))
    return ranges + list(_BEYOND_TABLE)
