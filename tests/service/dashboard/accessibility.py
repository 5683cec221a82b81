"""What keeps people from using a page: faults that axe-core finds, and what Tab does not reach."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

COLOURS = ("color-contrast", "link-in-text-block")
"""Rules of axe-core that may be broken in one scheme alone."""
MAX_PRESSES_ON_ONE = 20
"""Presses of Tab that one element may take: a field of date and time takes nine."""

START_ROUND = """() => {
  const STOPS = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const isUsable = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.matches(":disabled");
  // Arrow keys move between radio buttons of one name, and between points of a drawing.
  const getStop = (node) => (node.type === "radio" ? node.name : node.closest("svg") ?? node);
  const describe = (words, node) => `${words}: ${node.cloneNode().outerHTML}`;
  const getRing = (node) => {
    const { boxShadow, outlineColor, outlineStyle, outlineWidth } = getComputedStyle(node);
    return outlineStyle === "none" ? boxShadow : boxShadow + outlineColor + outlineWidth;
  };
  const isCovered = (node) => {
    const { left, top, right, bottom } = node.getClientRects()[0];
    const middle = (start, end, size) => (Math.max(start, 0) + Math.min(end, size)) / 2;
    const seen = document.elementFromPoint(middle(left, right, innerWidth), middle(top, bottom, innerHeight));
    return !seen || !(seen.contains(node) || node.contains(seen));
  };
  document.activeElement.blur();
  const root = document.querySelector("dialog:modal") ?? document.body;
  const nodes = [...root.querySelectorAll(STOPS)].filter(isUsable);
  const rings = new Map(nodes.map((node) => [node, getRing(node)]));
  const reached = new Set();
  const faults = [];
  let last = null;
  let numPresses = 0;
  window.tabRound = {
    /** Look at what has the focus; return whether the round goes on. */
    look(maxPresses) {
      const node = document.activeElement;
      numPresses = node === last ? numPresses + 1 : 0;
      if (node === last) return numPresses < maxPresses;
      last = node;
      // Between the last element and the first one, the focus is on the window.
      if (node === document.body) return true;
      if (reached.has(getStop(node))) return false;
      reached.add(getStop(node));
      if (getRing(node) === rings.get(node)) faults.push(describe("no ring around the focus", node));
      if (isCovered(node)) faults.push(describe("covered while it has the focus", node));
      return true;
    },
    end() {
      const missed = nodes.filter((node) => isUsable(node) && !reached.has(getStop(node)));
      return [...faults, ...missed.map((node) => describe("not reached by Tab", node))];
    },
  };
}"""
"""Script that notes which elements Tab must reach, and how they look without the focus."""


def list_faults_of_one_scheme(page: Page) -> list[str]:
    """List what axe-core finds on a page by the rules that colours may break."""
    return _run_axe(page, runOnly=COLOURS)


def list_faults_of_all_schemes(page: Page) -> list[str]:
    """List what axe-core finds on a page by all other rules, with the one on the size of targets, which is off else."""
    return _run_axe(page, rules={"target-size": {"enabled": True}, **{name: {"enabled": False} for name in COLOURS}})


def _run_axe(page: Page, **options: Any) -> list[str]:
    faults = (
        Axe().run(page, options={"resultTypes": ["violations"], "preload": False, **options}).response["violations"]
    )
    return [f"{fault['id']}: {node['html']}: {node['failureSummary']}" for fault in faults for node in fault["nodes"]]


def list_keyboard_faults(page: Page) -> list[str]:
    """Press Tab until the focus comes around; list what it did not reach, and what did not show that it had it."""
    page.evaluate(START_ROUND)
    page.keyboard.press("Tab")
    while page.evaluate("max => tabRound.look(max)", MAX_PRESSES_ON_ONE):
        page.keyboard.press("Tab")
    return page.evaluate("tabRound.end()")
