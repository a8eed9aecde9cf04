//! A page with charts in a real browser, Chromium.

use std::fs;
use std::process::Command;

/// What a browser shows of a page.
#[derive(Debug)]
pub struct Shown {
    /// The drawings that are to be seen.
    pub drawings: Vec<Drawing>,
    /// Nothing is wider than the window.
    pub fits: bool,
    /// The page took the dark colours.
    pub dark: bool,
    /// The smallest contrast of a text to what is behind it (WCAG 2.1, 1 to 21).
    pub text_contrast: f64,
    /// The same for lines and bars.
    pub line_contrast: f64,
}

/// One drawing.
#[derive(Debug)]
pub struct Drawing {
    /// Its class.
    pub class: String,
    /// Lines and bars that have a length.
    pub drawn: usize,
    /// Texts that stick out of it.
    pub outside: usize,
    /// It is within the window.
    pub within: bool,
}

impl Shown {
    /// Holds what every page must keep at every width and in both schemes.
    pub fn hold(&self, dark: bool) {
        assert!(!self.drawings.is_empty() && self.fits, "{self:?}");
        assert!(self.drawings.iter().all(|d| d.outside == 0 && d.within), "{self:?}");
        assert!(self.drawings.iter().any(|d| d.drawn > 0), "{self:?}");
        assert!(self.drawings.iter().all(|d| d.class.starts_with("chart ")), "{self:?}");
        assert_eq!(self.dark, dark, "{self:?}");
        // WCAG 2.1: 4.5 for text (1.4.3), 3 for graphics (1.4.11); grid lines are decoration.
        assert!(self.text_contrast >= 4.5 && self.line_contrast >= 3.0, "{self:?}");
    }
}

/// Whether there is one.
pub fn is_installed() -> bool {
    Command::new("chromium").arg("--version").output().is_ok()
}

/// Opens `page` in a window of this width, light or dark. A message on the browser's console is a fault.
pub fn open(page: &str, width: u32, dark: bool) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    // The page itself runs no script; the frame around it measures it.
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    let path = folder.path().join("frame.html");
    fs::write(&path, frame(&format!("srcdoc=\"{inner}\""), width)).unwrap();
    shown(&dump(&format!("file://{}", path.display()), dark, &["--virtual-time-budget=2000"]))
}

/// A page that shows another one, `source` being an attribute of the frame, and measures it when all is loaded.
pub fn frame(source: &str, width: u32) -> String {
    format!(
        "<meta name=\"color-scheme\" content=\"light dark\"><body style=\"margin:0\">\
         <iframe width=\"{width}\" height=\"800\" style=\"border:0\" {source}></iframe>\
         {PROBE}</body>"
    )
}

/// What is at `url` when the page has loaded, for a browser with these `options` in the network namespace of this
/// thread. A message on its console is a fault.
pub fn dump(url: &str, dark: bool, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(options)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--log-level=0"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg("--window-size=1280,900")
        .args(["--dump-dom", url])
        .output()
        .expect("chromium starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("CONSOLE"), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a [`frame`] has measured.
pub fn shown(dom: &str) -> Shown {
    let probed = dom.split_once("data-probe=\"").expect("the probe ran").1;
    read(probed.split_once('"').unwrap().0)
}

fn read(probed: &str) -> Shown {
    let mut parts = probed.split(' ');
    let mut next = || parts.next().unwrap();
    let (fits, dark) = (next() == "true", next() == "true");
    let (text_contrast, line_contrast) = (next().parse().unwrap(), next().parse().unwrap());
    let drawing = |words: &str| {
        let mut words = words.split(':');
        let mut next = || words.next().unwrap();
        Drawing {
            class: next().replace('-', " "),
            drawn: next().parse().unwrap(),
            outside: next().parse().unwrap(),
            within: next() == "true",
        }
    };
    Shown { drawings: parts.map(drawing).collect(), fits, dark, text_contrast, line_contrast }
}

/// Writes down what [`Shown`] holds, measured from outside of the page.
const PROBE: &str = r#"<script>onload = () => {
const w = frames[0], d = w.document, charts = [];
const rgb = text => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => { const f = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const behind = at => { for (; at; at = at.parentElement) { const c = rgb(w.getComputedStyle(at).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const contrast = (text, at) => { if (!text.startsWith('rgb')) return 21;
  const pair = [light(rgb(text)), light(behind(at))].sort((a, b) => b - a);
  return (pair[0] + 0.05) / (pair[1] + 0.05); };
let texts = 21, lines = 21;
for (const svg of d.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  if (box.width === 0) continue;
  let drawn = 0, outside = 0;
  for (const path of svg.querySelectorAll('path.line,path.bar')) {
    if (path.getTotalLength() <= 10) continue;
    drawn++;
    const style = w.getComputedStyle(path);
    lines = Math.min(lines, contrast(path.matches('.bar') ? style.fill : style.stroke, svg));
  }
  for (const text of svg.querySelectorAll('text')) {
    const at = text.getBoundingClientRect();
    if (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1)
      outside++;
    texts = Math.min(texts, contrast(w.getComputedStyle(text).fill, svg));
  }
  charts.push([svg.getAttribute('class').replace(/ /g, '-'), drawn, outside, box.right <= w.innerWidth].join(':'));
}
for (const at of d.querySelectorAll('h1,h2,h3,p,li,td,th,a,summary,figcaption,.badge'))
  if (at.getClientRects().length) texts = Math.min(texts, contrast(w.getComputedStyle(at).color, at));
const dark = light(behind(d.body)) < 0.2;
document.body.dataset.probe = [d.documentElement.scrollWidth <= w.innerWidth, dark, texts.toFixed(2),
  lines.toFixed(2), ...charts].join(' ');
}</script>"#;
