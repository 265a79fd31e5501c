//! Database servers of the distribution, each in a temporary folder that only the tests know.
//!
//! A shell starts the server and waits until its own input ends. The input ends with the process of
//! the tests, however that process ends. Then the shell stops the server and removes the folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A running server. It listens on a unix socket in its folder.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    /// The shell. It stops the server when its input ends.
    _keeper: Child,
}

/// `$1` is the folder. `$run` is the command that drops root's rights, if needed.
const PREAMBLE: &str = r#"
dir=$1
run=
if [ "$(id -u)" = 0 ]; then
    chown nobody:nogroup "$dir"
    run="setpriv --reuid=nobody --regid=nogroup --clear-groups --"
fi
cd "$dir"
"#;

const POSTGRES: &str = r#"
$run "$bin/initdb" -D "$dir/data" -U postgres -A trust -N || exit 1
# What is asked is not whether a disk keeps its word.
$run "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= \
    -c fsync="${ELDERLOCK_FENCE_FSYNC:-off}" -c max_connections=100 &
server=$!
cat >/dev/null
kill -QUIT $server
wait $server
rm -rf "$dir"
"#;

const MARIADB: &str = r#"
$run "$install" --no-defaults --datadir="$dir/data" --skip-test-db \
    --auth-root-authentication-method=normal || exit 1
[ "$ELDERLOCK_FENCE_FSYNC" = on ] && flush=1
$run "$bin/mariadbd" --no-defaults --datadir="$dir/data" --socket="$dir/socket" --skip-networking \
    --pid-file="$dir/pid" --innodb-flush-log-at-trx-commit="${flush:-0}" \
    --innodb-buffer-pool-size=64M &
server=$!
cat >/dev/null
kill -KILL $server
wait $server
rm -rf "$dir"
"#;

/// The server for all tests of the process. `None`, with a line of output, if there is no such
/// server here.
pub(crate) fn postgres() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let start = || {
        let Some(bin) = folder_of("postgres", &postgres_folders()) else {
            println!("skipped: PostgreSQL server: the program postgres is not installed");
            return None;
        };
        let script = format!("{PREAMBLE}\nbin='{}'\n{POSTGRES}", bin.display());
        Some(Server::start("postgres", &script, ".s.PGSQL.5432"))
    };
    SERVER.get_or_init(start).as_ref()
}

/// Like [`postgres`], for MariaDB.
pub(crate) fn mariadb() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let start = || {
        let folders = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")];
        let (server, install) =
            (folder_of("mariadbd", &folders), folder_of("mariadb-install-db", &folders));
        let (Some(server), Some(install)) = (server, install) else {
            println!("skipped: MariaDB server: the program mariadbd is not installed");
            return None;
        };
        let install = install.join("mariadb-install-db");
        let script = format!(
            "{PREAMBLE}\nbin='{}'\ninstall='{}'\n{MARIADB}",
            server.display(),
            install.display()
        );
        Some(Server::start("mariadb", &script, "socket"))
    };
    SERVER.get_or_init(start).as_ref()
}

impl Server {
    fn start(kind: &str, script: &str, socket: &str) -> Server {
        let folder =
            std::env::temp_dir().join(format!("elderlock-fence-{kind}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
        let log = folder.join("log");
        let output = File::create(&log).expect("a log can be made");
        let errors = output.try_clone().expect("its handle can be doubled");
        let mut keeper = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("a shell can be started");
        let start = Instant::now();
        while !folder.join(socket).exists() {
            let ended = keeper.try_wait().expect("the shell can be asked");
            let text = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "{kind} does not start:\n{}", text());
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "{kind} is not ready after two minutes:\n{}",
                text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Server { folder, _keeper: keeper }
    }
}

/// Debian keeps the programs of each version in a folder of its own.
fn postgres_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    folders.sort();
    folders.reverse();
    folders
}

fn folder_of(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path);
    let has_it = |folder: &Path| folder.join(program).is_file();
    folders.iter().cloned().chain(on_path).find(|folder| has_it(folder))
}
