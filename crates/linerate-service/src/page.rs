//! The page with charts: one file with its style sheet and script, which polls `data.json`.

/// The style sheet of Linerate's pages with charts, light and dark.
pub const STYLE: &str = include_str!("style.css");

/// The style of what only this page has.
const LIVE: &str = "
body { max-width: 76rem; }
#charts, #tables { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
#tables { margin-top: 1rem; align-items: start; }
figure { margin: 0; min-width: 0; }
h2 { font-size: 1.02rem; }
#tiles { display: flex; flex-wrap: wrap; gap: 0.75rem; margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 0.5rem 1rem; }
.tile .sub { display: block; margin: 0; }
.tile strong { font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.sub { overflow-wrap: anywhere; }
#state { white-space: normal; }
.key { margin: 0.25rem 0 0; }
.named { color: var(--c); display: inline-block; font-weight: 600; margin-right: 1rem; }
";

const SCRIPT: &str = include_str!("charts.js");

/// The page.
pub(crate) fn page(verb: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>linerate {verb}</title>\n<style>\n{STYLE}{LIVE}</style>\n</head>\n<body>\n\
         <header><h1 id=\"title\">linerate {verb}</h1>\n<p class=\"sub\" id=\"about\"></p>\n\
         <p><span class=\"badge open\" id=\"state\">no data yet</span></p></header>\n\
         <div id=\"tiles\"></div>\n<div id=\"charts\"></div>\n<div id=\"tables\"></div>\n\
         <footer><p>Version {version}. <a href=\"data.json\">data.json</a> has these counts, \
         <a href=\"metrics\">metrics</a> has them for Prometheus.</p></footer>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}
