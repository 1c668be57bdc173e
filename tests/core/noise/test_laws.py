"""Laws of noise in floats, against sums over all integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.noise.laws import GaussianLaw, LaplaceLaw, NoiseLaw
from hushgram.noise.noises import noise_of

Z = np.arange(-40_000.0, 40_001.0)


def masses(law: NoiseLaw) -> np.ndarray:
    """P(Z = z) from the definition."""
    gaussian = isinstance(law, GaussianLaw)
    weight = np.exp(-0.5 * (Z / law.scale) ** 2) if gaussian else np.exp(-np.abs(Z) / law.scale)
    return np.asarray(weight / weight.sum())


LAWS = [LaplaceLaw(0.3), LaplaceLaw(2.0), LaplaceLaw(90.0)]
LAWS += [GaussianLaw(scale) for scale in (0.2, 0.7, 3.9, 4.0, 27.0, 900.0)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{type(law).__name__}({law.scale})")
def test_a_law_is_the_sum_over_its_noise(law: NoiseLaw) -> None:
    mass = masses(law)
    near = np.arange(-300, 301)
    assert law.pmf(near.astype(float)) == pytest.approx(mass[near + 40_000], abs=1e-13)
    tails = np.cumsum(mass[::-1])[::-1]
    assert law.tail(near.astype(float)) == pytest.approx(tails[near + 40_000], abs=1e-12)
    assert law.variance == pytest.approx(mass @ Z**2)
    for at in (0.001, 0.02, 0.3):
        assert law.wave(np.array([at]))[0] == pytest.approx(mass @ np.cos(at * Z), abs=1e-10)
    for level in (0.5, 0.9, 0.95, 0.999):
        radius = law.radius(level)
        assert mass[np.abs(Z) <= radius].sum() >= level - 1e-12
        assert radius == 0 or mass[np.abs(Z) <= radius - 1].sum() < level


@pytest.mark.parametrize("law", [LaplaceLaw(7.0), GaussianLaw(5.5)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("terms", [1, 2, 7, 40])
def test_sums_of_noise_are_held(law: NoiseLaw, terms: int) -> None:
    """The sum's distribution by Fourier transform; an interval holds the level, and not far more."""
    turned = np.fft.fft(np.fft.ifftshift(masses(law)[:-1])) ** terms
    mass = np.fft.fftshift(np.fft.ifft(turned).real)
    half = law.interval(0.95, terms)
    held = mass[np.abs(Z[:-1]) <= half].sum()
    assert held >= 0.95 - (2e-3 if terms >= 30 else 1e-9)
    assert held <= 0.999


def test_a_wide_gaussian_is_as_the_normal() -> None:
    law = GaussianLaw(3e5)
    at = np.array([-4e5, 0.0, 1.0, 2.5e5, 9e5])
    normal = [0.5 * math.erfc((x - 0.5) / 3e5 / math.sqrt(2.0)) for x in at]
    assert law.tail(at) == pytest.approx(normal, rel=1e-5)
    assert law.radius(0.95) == pytest.approx(1.96 * 3e5, rel=1e-3)


def test_every_noise_has_its_law() -> None:
    assert isinstance(noise_of("laplace").law(2.0), LaplaceLaw)
    assert isinstance(noise_of("gaussian").law(2.0), GaussianLaw)
    with pytest.raises(ParameterError, match="positive and finite"):
        noise_of("laplace").law(0.0)


@pytest.mark.parametrize("law", [LaplaceLaw(0.7), LaplaceLaw(9.0), GaussianLaw(2.0), GaussianLaw(30.0)])
def test_selection_adds_what_is_stated(law: NoiseLaw) -> None:
    """E[c(x + Z)] = E[Z; x + Z ≥ cut] for every x: exactly under Laplace noise, nearly under Gaussian noise."""
    mass, cut = masses(law), 40
    exact = isinstance(law, LaplaceLaw)
    for x in range(0, 90, 3):
        selected = float(mass[Z + x >= cut] @ Z[Z + x >= cut])
        stated = float(mass @ law.selected(Z + x, cut))
        assert stated == pytest.approx(selected, abs=1e-9 if exact else 0.02 * law.scale)
