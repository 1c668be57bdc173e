"""Every constant of the decoders: what it does, and how it was found.

None of them touches privacy (decoding is post-processing), and none can make a confidence interval or an unbiased
estimate wrong: those hold by construction. They decide how short intervals are, how close the fitted prior is, and
how much time a lookup takes. "Tuned": chosen by the error and coverage of `python -m benchmarks.error` over
`benchmarks.data.HISTOGRAMS`, and checked on `HELD_OUT`, which played no part in the choice.

Behind each constant: what it does; how it was found.
"""

from __future__ import annotations

from typing import Final

# counts (prior.py)
SUPPORT_REACH: Final = 30.0  # noise scales from the threshold to the prior's last count; e^−30 is nothing
ATOMS: Final = 16  # atoms are at most 1/16 of their count and of the noise scale wide; halving: no change
SPLIT: Final = 4  # bins in a cell of the profile's grid, at most; tuned
WIDE_BINS: Final = 4096  # from this count on a cell of the grid is one bin; time of the fit

# observations (prior.py, alp.py)
GUESS: Final = 0.3  # relative standard deviation of n and k that a configuration states; a guess
SLACK: Final = 5e-4  # relative error of n from the atoms' width; 1/(2·ATOMS)², seen
EMPTY: Final = 1e-3  # share of a column that stays empty, so that its load is finite; keeps ln finite
CONTRAST: Final = 1e-3  # share of its contrast that a full column keeps; keeps ratios finite
VALUES: Final = 40  # ranges of listed values, half a noise scale each; halving: no change
SURE: Final = 7.0  # noise scales above the threshold from where bits are left out; bias < 0.001 scales

# prior (prior.py)
CURVE: Final = 1.0  # standard deviation of a change of slope of ln density per ln x; tuned, large C
STIFF: Final = 2.0  # the same inside a cell of the profile's grid; tuned
LEAN: Final = 3.0  # standard deviation of the slope about −2; tuned
TAIL: Final = 2.0  # degrees of freedom of the bends: a few spikes must be possible; tuned (two points)
HUBER: Final = 10.0  # standard deviations beyond which an observation pulls no harder; tuned (a lying N_t)
PASSES: Final = 3  # passes over the shape inside the bins; no gain beyond
STEPS: Final = 50  # steps of one fit; no gain beyond
LOOSE: Final = 0.02  # relative error of n allowed before the last pass; tuned
STRIDE: Final = 1.5  # longest step of a ln μ; no gain beyond
ENOUGH: Final = 1e-3  # gain below which the fit is done; no gain beyond

# posterior (posterior.py)
NEAR: Final = 15.0  # values within this many noise scales of the threshold use the prior; e^−15 is negligible
POWER: Final = 2.0  # exponent of the power law that stands for the prior far above; Zipf's tail
SPARE: Final = 3.0  # a credible interval leaves out at most this many times 1 − level
MARGIN: Final = 0.2  # share of 1 − level that credible intervals keep in hand; tuned
CALIBRATE: Final = 12  # credible intervals are calibrated on all symbols of a key, if at most 2^12; time
CHUNK: Final = 1 << 21  # elements of a table that are in memory at a time; memory

# confidence (confidence.py)
ENUMERATE: Final = 15  # columns up to which all 2^m patterns are listed; time
GROUPS: Final = 4  # groups of columns beyond that (3 beyond 40 columns); time
HIDDEN_CLASSES: Final = 64  # outcomes of the encoding for a key that is not listed; doubling: 1 % shorter
RANGES: Final = 0.06  # share of the missing coverage that ranges of counts add, at least; worst case, test
FINE: Final = 8  # candidate counts and ranges of values: at most 1/8 noise scale; doubling: no change
COLLIDING: Final = 0.3  # share of it for keys that share a cell, among several; 0.1 to 0.5: little
LISTED_SHARE: Final = 0.9  # share of the missing coverage for keys that are listed; any near 1
LEAST_MISS: Final = 1e-12  # least probability that an interval misses, over its keys; digits of a double
LONELY: Final = 0.15  # counts that favour an outcome that none accepts, as a share of the most; e^−1.92: 95 %
SHORTEN: Final = (
    0.3  # counts missed by less than this share of what they may be give ends; 1: see decision 124
)
TOP: Final = 12.0  # candidate counts end this many noise scales above the threshold; e^−12 is negligible

# buckets (buckets.py)
BACKGROUND_CELLS: Final = 1 << 15  # cells of the background's distribution; time
BACKGROUND_WINDOW: Final = 60.0  # buckets in a window that scales the model; tuned
BACKGROUND_SEEN: Final = 0.2  # share of the seen values, smoothed by the noise, in the model; coverage, test
BACKGROUND_SURE: Final = 30  # buckets from which on their mean is the background's; a mean needs some
BUCKET_REACH: Final = 40.0  # noise scales that the grid goes on above the prior's support; e^−40 is nothing
BUCKET_CLASSES: Final = 250  # classes of values of keys that are not listed; doubling: no change
BUCKET_WAVES: Final = 16  # frequencies at which all buckets inform the prior; doubling: no change
LEAST_CHANCE: Final = 1e-18  # least likelihood of a bucket's value; keeps ratios finite
SAMPLE: Final = 1 << 18  # buckets from which the background is measured; 0.2 % of a deviation

# single keys and totals (decoder.py)
PRESENT: Final = 0.5  # probability that a looked-up key is in the data, where nobody says; nothing is known
WHOLE: Final = 0.99  # level at which n̂ with its noise bounds every count and every sum; rarely in the way
INSIDE: Final = 1.5  # standard deviations that an estimate may leave the unbiased sum by; tuned: worst case
PROVED: Final = 0.05  # share of the missing coverage for each end that is proved; an interval is 2.5 % longer
MET: Final = (
    0.0125  # share of totals in which a key of the set shares the cell of a larger key than is reckoned with
)
MODEL: Final = 1e-3  # relative error of the prior's mean that comes from its bins; seen in the benchmark
TABLES: Final = 8  # tables that are kept, of levels and of probabilities of being there; memory

# totals (totals.py)
SET_RATIO: Final = 1.35  # bins of a set's own distribution grow by this ratio; halving: no change
SET_NOISE: Final = 2.0  # noise scales that a bin spans where keys are listed; halving: no change
SET_BEND: Final = 6.0  # standard deviation of bends of its ln density ratio; tuned
SET_SLOPE: Final = 4.0  # the same of slopes; tuned
SET_ABSENT: Final = 3.0  # standard deviation of the log-odds of the absent share; flat enough
SET_FLOOR: Final = 1e-3  # share of x^−2 in the prior's shape inside the bins; no bin impossible
SET_RIDGE: Final = 1e-4  # what keeps the fit's curvature regular; no effect
SET_STEPS: Final = 100  # steps of a fit; no gain beyond
