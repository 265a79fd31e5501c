'use strict';
let errors = 0;
addEventListener('error', () => { document.documentElement.dataset.errors = ++errors; });
document.documentElement.dataset.errors = 0;

const theme = (name) => { document.documentElement.dataset.theme = name; };
document.getElementById('theme').onclick = () => {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  theme(dark ? 'light' : 'dark');
};
// `#show=dark+level-2`: how to begin.
for (const wish of location.hash.replace('#show=', '').split('+')) {
  if (wish === 'dark' || wish === 'light') theme(wish);
  const input = wish && document.getElementById(wish);
  if (input && input.matches('input')) input.checked = true;
}
for (const button of document.querySelectorAll('.copy')) {
  button.onclick = () => navigator.clipboard?.writeText(button.previousElementSibling.textContent);
}
// The label of a bar stays in sight while its bar is.
const follow = (scroll) => {
  for (const text of scroll.querySelectorAll('[data-last]')) {
    text.dataset.first ??= text.getAttribute('x');
    text.setAttribute('x', Math.max(text.dataset.first, Math.min(scroll.scrollLeft + 4, text.dataset.last)));
  }
};
for (const scroll of document.querySelectorAll('.scroll')) scroll.onscroll = () => follow(scroll);
// A diagram that is wider than its page begins with what matters: its end, or its middle.
const toTheEnd = () => {
  for (const scroll of document.querySelectorAll('[data-end] .scroll')) scroll.scrollLeft = scroll.scrollWidth;
  for (const scroll of document.querySelectorAll('[data-middle] .scroll')) {
    scroll.scrollLeft = (scroll.scrollWidth - scroll.clientWidth) / 2;
  }
};
for (const tab of document.querySelectorAll('.tabs input')) tab.onchange = toTheEnd;
toTheEnd();

// Says whether any label covers another or leaves its picture; `sim/tests/report.rs` reads it.
const measure = () => {
  const root = document.documentElement;
  root.classList.add('measuring');
  const covered = [];
  let count = 0;
  for (const svg of document.querySelectorAll('svg.time, svg.chart')) {
    const frame = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
    count += boxes.length;
    boxes.forEach(([words, box], index) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1) covered.push(words + ' leaves');
      for (const [other, with_] of boxes.slice(0, index)) {
        // One pixel above and below belongs to the line, not to the letters.
        const apart = box.right <= with_.left || with_.right <= box.left || box.bottom - 1 <= with_.top + 1 || with_.bottom - 1 <= box.top + 1;
        if (!apart) covered.push(words + ' covers ' + other);
      }
    });
  }
  root.classList.remove('measuring');
  root.dataset.labels = count;
  root.dataset.covered = covered.length;
  root.dataset.which = covered.slice(0, 5).join('; ');
  root.dataset.overflow = root.scrollWidth > innerWidth + 1 ? root.scrollWidth - innerWidth : 0;
};
measure();
