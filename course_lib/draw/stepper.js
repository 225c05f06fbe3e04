// Makes a stepper of each figure.course-steps that is not one yet: the picture in it stays, and a
// window shows one step of it at a time. Without this script the whole picture is there.
for (const figure of document.querySelectorAll("figure.course-steps:not([data-at])")) {
  const { steps, caption, width, ratio } = JSON.parse(figure.dataset.steps);
  const add = (parent, tag, properties, style = {}) => {
    const node = Object.assign(document.createElement(tag), properties);
    Object.assign(node.style, style);
    return parent.appendChild(node);
  };
  const percent = (part) => `${100 * part}%`;

  const image = figure.querySelector("img");
  const [, , wide, high] = steps[0].shown;
  const look = add(figure, "div", { className: "course-window" }, {
    position: "relative", overflow: "hidden", maxWidth: `${Math.min(900, 1.5 * wide * width)}px`,
    aspectRatio: `${wide} / ${high * ratio}`,
  });
  const sheet = add(look, "div", {}, { position: "absolute", width: percent(1 / wide) });
  sheet.append(image);
  Object.assign(image.style, { display: "block", width: "100%", maxWidth: "none" });
  const veil = add(sheet, "div", {}, {
    position: "absolute", background: "rgba(255, 255, 255, 0.88)", borderLeft: "2px solid #222",
  });

  const bar = add(figure, "div", { className: "course-bar" }, {
    display: "flex", gap: "6px", alignItems: "center", maxWidth: look.style.maxWidth,
  });
  const back = add(bar, "button", { type: "button", textContent: "◀", ariaLabel: "Step back" });
  const play = add(bar, "button", { type: "button" }, { minWidth: "5em" });
  const forward = add(bar, "button", { type: "button", textContent: "▶", ariaLabel: "Step forward" });
  const slider = add(bar, "input", { type: "range", min: 0, max: steps.length - 1, ariaLabel: "Step" },
    { flex: "1" });
  const title = add(figure, "output", {}, { // as high with two lines as with one: nothing jumps
    display: "block", fontWeight: "600", minHeight: steps[0].veil ? "2.8em" : "0",
  });
  add(figure, "figcaption", { textContent: caption });
  add(figure, "style", { textContent: `@media print { /* the whole picture, as without a script */
    .course-window, .course-window > div { all: unset !important }
    .course-window > div > div, .course-window ~ * { display: none !important } }` });

  let at = 0, timer = null;
  const show = (step) => {
    at = Math.max(0, Math.min(steps.length - 1, step));
    const { shown: [left, top], veil: place } = steps[at];
    Object.assign(sheet.style, { left: percent(-left / wide), top: percent(-top / high) });
    veil.hidden = !place;
    ["left", "top", "width", "height"].forEach((side, k) => {
      veil.style[side] = place ? percent(place[k]) : "0";
    });
    title.textContent = steps[at].title;
    slider.value = figure.dataset.at = at;
    slider.setAttribute("aria-valuetext", steps[at].words);
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    title.setAttribute("aria-live", "polite");
  };
  const tick = () => {
    if (at < steps.length - 1 && figure.isConnected) show(at + 1);
    if (at === steps.length - 1 || !figure.isConnected) pause();
  };
  const toggle = () => {
    if (timer) return pause();
    if (at === steps.length - 1) show(0);
    timer = setInterval(tick, 1200);
    play.textContent = "Pause";
    title.setAttribute("aria-live", "off"); // a screen reader could not keep up
  };
  const go = (step) => { pause(); show(step); };
  play.onclick = toggle;
  back.onclick = () => go(at - 1);
  forward.onclick = () => go(at + 1);
  slider.oninput = () => go(Number(slider.value));
  figure.onkeydown = (event) => {
    const keys = { ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1),
      Home: () => go(0), End: () => go(steps.length - 1) };
    if (event.target === slider && event.key === " ") keys[" "] = toggle;
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  };
  pause();
  show(0);
}
