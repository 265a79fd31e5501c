//! Secrets of a command: keys or a token, from the strongest source that has them.
//!
//! | source, the strongest first | a file | the secret itself |
//! |---|---|---|
//! | command line | `--key-file` | none, as other users see flags |
//! | environment | `ELDERLOCK_KEY_FILE` | `ELDERLOCK_KEY` |
//! | configuration file | `key_file` | none |
//!
//! A source hides the weaker ones. Both forms in one source are an error, because neither is
//! stronger.

use clap::builder::{PathBufValueParser, TypedValueParser, ValueParserFactory};
use clap::parser::ValueSource;
use clap::{Arg, Command};
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The file of a secret, by the source that names the file.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(from = "PathBuf")]
pub(crate) enum SecretFile {
    /// Named by a flag.
    Flag(PathBuf),
    /// Named by the variable of the flag.
    Variable(PathBuf),
    /// Named by the configuration file.
    Config(PathBuf),
}

/// A secret, from the strongest source that gives one.
#[cfg_attr(test, derive(PartialEq, Eq, Debug))]
pub(crate) enum Secret {
    /// The file with the secret.
    File(PathBuf),
    /// The secret itself.
    Text(String),
}

/// The names of the two variables that give a secret.
pub(crate) struct SecretVariables {
    /// Names a file.
    pub(crate) file: &'static str,
    /// Holds the secret itself.
    pub(crate) text: &'static str,
}

impl SecretVariables {
    /// The secret of the strongest source. `None` if no source has one.
    pub(crate) fn find(&self, file: Option<&SecretFile>) -> Result<Option<Secret>, String> {
        let text = std::env::var(self.text).ok().filter(|text| !text.trim().is_empty());
        self.strongest(file, text)
    }

    fn strongest(
        &self,
        file: Option<&SecretFile>,
        text: Option<String>,
    ) -> Result<Option<Secret>, String> {
        Ok(match (file, text) {
            (Some(SecretFile::Variable(_)), Some(_)) => {
                let SecretVariables { file, text } = self;
                return Err(format!("both {file} and {text} are set: set one of them"));
            }
            (Some(SecretFile::Flag(path) | SecretFile::Variable(path)), _)
            | (Some(SecretFile::Config(path)), None) => Some(Secret::File(path.clone())),
            (Some(SecretFile::Config(_)) | None, Some(text)) => Some(Secret::Text(text)),
            (None, None) => None,
        })
    }
}

impl From<PathBuf> for SecretFile {
    fn from(path: PathBuf) -> SecretFile {
        SecretFile::Config(path)
    }
}

impl ValueParserFactory for SecretFile {
    type Parser = SecretFileParser;

    fn value_parser() -> SecretFileParser {
        SecretFileParser
    }
}

/// Notes whether a flag or its variable names the file.
#[derive(Clone)]
pub(crate) struct SecretFileParser;

impl TypedValueParser for SecretFileParser {
    type Value = SecretFile;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<SecretFile, clap::Error> {
        self.parse_ref_(command, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<SecretFile, clap::Error> {
        let path = PathBufValueParser::new().parse_ref(command, arg, value)?;
        Ok(match source {
            ValueSource::EnvVariable => SecretFile::Variable(path),
            _ => SecretFile::Flag(path),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins_over_variables_and_these_over_the_configuration_file() {
        const KEY: SecretVariables = SecretVariables { file: "KEY_FILE", text: "KEY" };
        let of = |file: Option<SecretFile>, text: Option<&str>| {
            KEY.strongest(file.as_ref(), text.map(str::to_owned))
        };
        let path = || PathBuf::from("a");
        let by_path = || Ok(Some(Secret::File(path())));
        let by_text = || Ok(Some(Secret::Text("x".to_owned())));
        assert_eq!(of(Some(SecretFile::Flag(path())), Some("x")), by_path());
        assert_eq!(of(Some(SecretFile::Flag(path())), None), by_path());
        assert_eq!(of(Some(SecretFile::Variable(path())), None), by_path());
        assert_eq!(of(Some(SecretFile::Config(path())), Some("x")), by_text());
        assert_eq!(of(Some(SecretFile::Config(path())), None), by_path());
        assert_eq!(of(None, Some("x")), by_text());
        assert_eq!(of(None, None), Ok(None));
        let both = of(Some(SecretFile::Variable(path())), Some("x"));
        assert_eq!(both, Err("both KEY_FILE and KEY are set: set one of them".to_owned()));
    }
}
