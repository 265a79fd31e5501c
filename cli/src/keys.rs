//! The cluster key on the command line: `elderlock keygen`, and the lookup of keys for other
//! commands.

use crate::CommandResult;
use crate::secret::{Secret, SecretFile, SecretVariables};
use clap::{Args, ValueEnum};
use elderlock::{ClusterKey, Keyring, Role};
use std::path::PathBuf;
use std::process::ExitCode;

/// The key itself, for systems that pass secrets in the environment. There is no flag for it,
/// because other users see flags.
pub(crate) const VARIABLE: &str = "ELDERLOCK_KEY";

/// Makes a cluster key: 32 random bytes in base64. All members need the same file. With `--derive`,
/// makes the key of a role instead.
#[derive(Args)]
pub(crate) struct KeygenArgs {
    /// Write the key to this new file, which only its owner can read. Without this flag: to
    /// standard output.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Derive the key of a role instead, from the first key of the key file. An observer may ask
    /// for the status; an operator may give orders as well.
    #[arg(long, value_name = "ROLE", requires = "key_file")]
    derive: Option<DerivedRole>,
    /// With --derive: the cluster's key file.
    #[arg(long, requires = "derive")]
    key_file: Option<PathBuf>,
}

/// A role that has a key of its own.
#[derive(Clone, Copy, ValueEnum)]
enum DerivedRole {
    Observer,
    Operator,
}

pub(crate) fn generate(args: KeygenArgs) -> CommandResult {
    let key = match (args.derive, args.key_file) {
        (Some(role), Some(path)) => Keyring::read_file(path)?.first().derive(match role {
            DerivedRole::Observer => Role::Observer,
            DerivedRole::Operator => Role::Operator,
        })?,
        _ => ClusterKey::generate()?,
    };
    match args.out {
        Some(path) => {
            key.write_file(&path)?;
            eprintln!("key {} is in {}", key.name(), path.display());
        }
        None => println!("{}", key.to_base64().as_str()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The variables of keys.
const KEYS: SecretVariables = SecretVariables { file: "ELDERLOCK_KEY_FILE", text: VARIABLE };

/// The keys of the strongest source. `None` if no source gives any.
pub(crate) fn find(
    key_file: Option<&SecretFile>,
) -> Result<Option<Keyring>, Box<dyn std::error::Error>> {
    source(key_file)?.as_ref().map(read).transpose()
}

/// The source of the keys, without reading it.
pub(crate) fn source(key_file: Option<&SecretFile>) -> Result<Option<Secret>, String> {
    KEYS.find(key_file)
}

/// Reads the keys from their source.
pub(crate) fn read(source: &Secret) -> Result<Keyring, Box<dyn std::error::Error>> {
    match source {
        Secret::File(path) => Ok(Keyring::read_file(path)?),
        Secret::Text(text) => {
            let ring = Keyring::parse(&text.replace(',', "\n"));
            Ok(ring.map_err(|error| format!("{VARIABLE}: {error}"))?)
        }
    }
}

/// Refuses `--insecure` beside a key, as the library does, with the flags' names.
pub(crate) fn check_insecure(insecure: bool, ring: Option<&Keyring>) -> Result<(), String> {
    if insecure && ring.is_some() {
        let problem =
            "--insecure is for a cluster without a key, and a key is given: give one of them";
        return Err(problem.into());
    }
    Ok(())
}
