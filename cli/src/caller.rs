//! The caller of a command: its user and its host.

/// The user's name from its environment, or else its number.
pub(crate) fn user() -> String {
    let name = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(number)
}

#[cfg(unix)]
fn number() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

#[cfg(not(unix))]
fn number() -> String {
    "unknown".to_owned()
}

/// The name of this host.
pub(crate) fn host() -> String {
    #[cfg(unix)]
    let name = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").ok();
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
