// Page that compares jobs: some side by side, or many as points of a scatter.
import { byId } from "../common/elements.js";
import { showCapacity, startHeader } from "../common/header.js";
import { isScatter } from "./address.js";
import { showMany, startMany } from "./many.js";
import { showSide, startSide } from "./side.js";

function show() {
  const isMany = isScatter();
  byId("side").hidden = isMany;
  byId("many").hidden = !isMany;
  byId(isMany ? "tab-many" : "tab-side").setAttribute("aria-current", "page");
  byId(isMany ? "tab-side" : "tab-many").removeAttribute("aria-current");
  if (isMany) showMany();
  else showSide();
}

startHeader();
showCapacity().catch(() => {});
startSide();
startMany();
show();
window.addEventListener("popstate", show);
