//! How far a long step is: a bar on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `steps` steps on standard error, which hides itself where that is no terminal.
pub(crate) fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:24} {pos}/{len}  {elapsed} gone, about {eta} left  {wide_msg}",
    );
    let bar = ProgressBar::new(steps);
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
