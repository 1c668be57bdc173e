"""hushgram: differentially private histograms over huge key domains, as small sketches that anyone may query."""
