//! The browser that opens pages in tests.

use std::path::PathBuf;

/// Returns the path of Chromium. `None`, with the line `skipped:`, if there is none.
pub(crate) fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: browser: chromium is not installed");
    }
    found
}
