"""Checks of a page in a real browser: width, contrast, keyboard, names of controls, silence.

    assert violations(browser, "file:///tmp/report.html") == []
    assert violations(browser, address, prepare=type_keys) == []

`browser` is that of `tests/pipelines/pages/conftest.py`. The page is loaded anew for each width, light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["CONTRAST", "WIDTHS", "violations"]

WIDTHS = (390, 768, 1280, 1920)
# From this width on, a table must fit without scrolling sideways.
WIDE = 1280

# Contrast of every visible text against what lies behind it (WCAG 2: 4.5, or 3 for large text).
CONTRAST = """() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const one = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(one);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length && (c.length < 4 || c[3] > 0)) return c; } return [255, 255, 255]; };
  const bad = [];
  const check = (e, style, text) => {
    const ink = parse(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && +style.fontWeight >= 700);
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) bad.push(e.tagName + ": " + text.trim().slice(0, 40));
  };
  for (const e of document.querySelectorAll("body *")) {
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || !e.getClientRects().length || e.disabled) continue;
    if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
      check(e, getComputedStyle(e), e.textContent);
    if (e.placeholder && !e.value) check(e, getComputedStyle(e, "::placeholder"), e.placeholder);
  }
  return bad;
}"""

# What sticks out of the window, of a box that hides it, of its chart or, at a desk, of a box that scrolls.
# Text that is cut on purpose has its whole in a title, or shows it when it gets the focus.
_OVERFLOW = """wide => {
  const bad = [], window_ = document.documentElement.clientWidth;
  const name = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + ": " + e.textContent.trim().slice(0, 40);
  const opens = e => {
    const control = e.closest("[tabindex]:not([role=region])");
    if (!control) return false;
    control.focus();
    const whole = e.scrollWidth <= e.clientWidth + 1;
    control.blur();
    return whole;
  };
  const hidden = e => e.closest(".visually-hidden");
  const whole = document.documentElement.scrollWidth;
  if (whole > window_) bad.push(`the page is ${whole} wide`);
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || hidden(e) || e instanceof SVGElement && e.tagName !== "text") continue;
    const chart = e.ownerSVGElement;
    if (chart) {
      const room = chart.getBoundingClientRect();
      if (box.left < room.left - 1 || box.right > room.right + 1 || box.top < room.top - 1
          || box.bottom > room.bottom + 1)
        bad.push("outside its chart: " + name(e));
      if (parseFloat(style.fontSize) * room.width / (chart.viewBox.baseVal.width || room.width) < 9.5)
        bad.push("too small to read: " + name(e));
      for (const other of chart.querySelectorAll("text")) {
        const b = other.getBoundingClientRect();
        if (!(e.compareDocumentPosition(other) & 4)) continue;  // each pair once
        if (b.width && box.left < b.right - 1 && b.left < box.right - 1 && box.top < b.bottom - 2
            && b.top < box.bottom - 2)
          bad.push("one over the other in a chart: " + name(e) + " and " + name(other));
      }
      continue;
    }
    let held = false;
    for (let up = e.parentElement; up && !held; up = up.parentElement)
      held = ["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX);
    if (!held && (box.right > window_ + 1 || box.left < -1)) bad.push("outside the window: " + name(e));
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth) {
      if (["hidden", "clip"].includes(style.overflowX) && !e.closest("[title], input, textarea, select") && !opens(e))
        bad.push("cut off: " + name(e));
      if (["auto", "scroll"].includes(style.overflowX) && e.tagName !== "TEXTAREA") {
        if (wide) bad.push("scrolls sideways: " + name(e));
        else if (e.tabIndex < 0 || !e.hasAttribute("tabindex"))
          bad.push("scrolls sideways and cannot be focused: " + name(e));
      }
    }
  }
  return bad;
}"""

_CONTROLS = """() => {
  const shown = e => e.checkVisibility({checkVisibilityCSS: true}) && e.getClientRects().length && !e.disabled;
  const which = "a[href], button, input, select, textarea, summary, [tabindex], [role=button]";
  const all = [...document.querySelectorAll(which)];
  window.controls_ = all.filter(e => shown(e) && e.type !== "hidden");
  document.activeElement.blur();
  const bad = [];
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) bad.push("two elements have the id " + id);
  for (const a of document.querySelectorAll("a[href^='#']"))
    if (a.hash.length > 1 && !document.getElementById(decodeURIComponent(a.hash.slice(1))))
      bad.push("leads nowhere: " + a.hash);
  for (const e of window.controls_) {
    const named = e.ariaLabel || e.title || e.textContent.trim() || e.getAttribute("aria-labelledby");
    if (!named && !(e.labels && e.labels.length)) bad.push("without a name: " + e.outerHTML.slice(0, 80));
    const box = e.getBoundingClientRect();
    if (e.matches("button, input, select, textarea") && Math.min(box.width, box.height) < 24 && !e.closest("label"))
      bad.push("smaller than 24 px: " + e.outerHTML.slice(0, 80));
  }
  for (const e of document.querySelectorAll("svg[role=img]:not([aria-label]), img:not([alt])"))
    bad.push("a picture without a text: " + e.outerHTML.slice(0, 80));
  return [bad, window.controls_.length];
}"""
# Returns the number of the focused control, and whether one sees that it is focused.
_FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  return [window.controls_.indexOf(e), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
}"""
_NAME = "i => window.controls_[i].outerHTML.slice(0, 80)"


def violations(
    browser: Any,
    address: str,
    *,
    prepare: Callable[[Any], None] | None = None,
    widths: Sequence[int] = WIDTHS,
    schemes: Sequence[str] = ("light", "dark"),
    script: bool = True,
) -> list[str]:
    """Return what is wrong with the page at an address, each with the width where it was found.

    Args:
        browser: a browser of Playwright.
        address: ``file://`` or ``http://``.
        prepare: brings the loaded page into the state that is to be checked, such as typing and waiting.
        widths: of the window, in pixels.
        schemes: light, dark or both.
        script: whether JavaScript runs.
    """
    found: list[str] = []
    for scheme in schemes:
        for width in widths:
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=script
            )
            try:
                told = _on_one_screen(context.new_page(), address, prepare, width, script)
            finally:
                context.close()
            found += [f"{width} px, {scheme}: {each}" for each in told]
    return found


def _on_one_screen(
    page: Any, address: str, prepare: Callable[[Any], None] | None, width: int, script: bool
) -> list[str]:
    found: list[str] = []
    page.on("console", lambda m: found.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda problem: found.append(str(problem)))
    page.on("request", lambda asked: None if _own(asked.url, address) else found.append(f"asks {asked.url}"))
    page.goto(address)
    if prepare is not None:
        prepare(page)
    found += page.evaluate(_OVERFLOW, width >= WIDE)
    found += [f"too faint: {text}" for text in page.evaluate(CONTRAST)]
    found += _keyboard(page)
    return found


def _keyboard(page: Any) -> list[str]:
    """Press Tab until every control had the focus."""
    found, count = page.evaluate(_CONTROLS)
    reached: set[int] = set()
    for _ in range(count + 3):
        if len(reached) == count:
            break
        page.keyboard.press("Tab")
        at, seen = page.evaluate(_FOCUSED)
        if at >= 0 and not seen:
            found.append(f"focused and does not show it: {page.evaluate(_NAME, at)}")
        if at >= 0:
            reached.add(at)
    missed = set(range(count)) - reached
    return found + [f"not reached by keyboard: {page.evaluate(_NAME, i)}" for i in sorted(missed)]


def _own(url: str, address: str) -> bool:
    here, there = urlsplit(url), urlsplit(address)
    if here.scheme in ("data", "blob"):
        return True
    return (
        url.partition("#")[0] == address
        if here.scheme == "file"
        else (here.scheme, here.netloc) == (there.scheme, there.netloc)
    )
