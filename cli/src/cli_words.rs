//! Errors of the library in the words of the command line.

use elderlock::JoinError;

/// Calls of the library, and the flags that replace them in texts.
const FLAGS: [(&str, &str); 13] = [
    ("seeds([\"host:port\"])", "--seed host:port"),
    ("found()", "--found"),
    ("expect()", "--expect"),
    ("join_limit()", "--join-seconds"),
    ("give an address to advertise", "give --advertise"),
    (
        "give a token, or say insecure()",
        "give --http-token-file, set ELDERLOCK_HTTP_TOKEN, or give --http-insecure",
    ),
    (
        "give a keyring(), bind() the loopback, or say insecure()",
        "give --key-file, a loopback address as --bind, or --insecure",
    ),
    ("insecure()", "--insecure"),
    ("force()", "--force"),
    ("keyring()", "--key-file"),
    ("the keyring has", "--key-file has"),
    ("build it with serve_sessions(true), or start it with", "start it with"),
    ("build it with forced_revokes(true), or start it with", "start it with"),
];

/// The text of the error, with flags in place of calls.
pub(crate) fn join_error(error: &JoinError) -> String {
    flags(error.to_string())
}

/// The text, with flags in place of calls.
pub(crate) fn flags(text: String) -> String {
    FLAGS.iter().fold(text, |text, (call, flag)| text.replace(call, flag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elderlock::Role;

    #[test]
    fn an_error_of_a_join_names_flags_and_no_calls() {
        let text = join_error(&JoinError::NoSeeds);
        assert!(text.contains("--seed host:port") && text.contains("--found"), "{text}");
        assert!(!text.contains("()"), "{text}");
        let text = join_error(&JoinError::RoleKey { role: Role::Operator });
        assert!(text.starts_with("--key-file has an operator key"), "{text}");
    }
}
