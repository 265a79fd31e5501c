//! The server of another lock service: found on this machine, started in a folder of its own, and
//! stopped.

use super::Rival;
use crate::processes::free_addresses;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time until the server answers; then it is killed.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The limit of connections: those of 64 tasks and a few more.
const CONNECTIONS: u32 = 100;
/// The folder in which Debian puts PostgreSQL's programs.
const POSTGRESQL: &str = "/usr/lib/postgresql";
/// The file as which Debian installs ZooKeeper.
const ZOOKEEPER: &str = "/usr/share/java/zookeeper.jar";
/// The user of PostgreSQL's package, and its group of the same name: PostgreSQL refuses to run as
/// root.
const POSTGRES: &str = "postgres";

pub(super) struct Server {
    child: Child,
    addr: SocketAddr,
    rival: Rival,
    version: String,
}

impl Server {
    /// Starts the server. A client that connects too early tries again. An error names the missing
    /// part.
    pub(super) fn start(rival: Rival, is_durable: bool, folder: &Path) -> Result<Server, String> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let addrs = free_addresses(2).map_err(|error| error.to_string())?;
        let plan = Plan { addr: addrs[0], peer: addrs[1], is_durable, folder };
        let (mut command, version) = match rival {
            Rival::Postgresql => plan.postgresql()?,
            Rival::Redis => plan.redis()?,
            Rival::Etcd => plan.etcd()?,
            Rival::Zookeeper => plan.zookeeper()?,
        };
        let log = File::create(folder.join("server.log")).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = child.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        Ok(Server { child, addr: plan.addr, rival, version })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The version that the running server reports.
    pub(super) fn version(&self) -> String {
        match self.rival {
            Rival::Zookeeper => {
                format!("{}, {}", srvr(self.addr).unwrap_or("ZooKeeper".to_owned()), self.version)
            }
            _ => self.version.clone(),
        }
    }

    /// Lets the server end, and kills it if it does not. Its folder is removed with the bench's
    /// folder.
    pub(super) fn stop(&mut self) {
        // SIGINT tells PostgreSQL not to wait for clients.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let until = Instant::now() + ANSWER_LIMIT;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The setup of a server.
struct Plan<'a> {
    addr: SocketAddr,
    /// The address for other servers of the cluster, of which there are none.
    peer: SocketAddr,
    is_durable: bool,
    folder: &'a Path,
}

impl Plan<'_> {
    fn postgresql(&self) -> Result<(Command, String), String> {
        let versions = std::fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
        folders.sort();
        let (initdb, postgres) = (find("initdb", &folders)?, find("postgres", &folders)?);
        let data = self.folder.join("data");
        std::fs::create_dir_all(&data).map_err(|error| error.to_string())?;
        let owner = std::fs::metadata(&data).map_err(|error| error.to_string())?.uid();
        let mut user: Vec<OsString> = Vec::new();
        if owner == 0 {
            let (user_id, group_id) =
                (id_of("/etc/passwd", POSTGRES)?, id_of("/etc/group", POSTGRES)?);
            chown(&data, Some(user_id), Some(group_id)).map_err(|error| error.to_string())?;
            user.extend(
                ["--reuid", POSTGRES, "--regid", POSTGRES, "--clear-groups"].map(OsString::from),
            );
        }
        let made = under(&user, &initdb)
            .args(["--no-sync", "--auth=trust", "--username=bench", "-D"])
            .arg(&data)
            .current_dir(&data)
            .output()
            .map_err(|error| format!("{}: {error}", initdb.display()))?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let mut command = under(&user, &postgres);
        command.arg("-D").arg(&data).args(["-p", &self.addr.port().to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            &format!("max_connections={CONNECTIONS}"),
        ] {
            command.args(["-c", setting]);
        }
        command.current_dir(&data);
        Ok((command, version(&postgres, "--version")))
    }

    fn redis(&self) -> Result<(Command, String), String> {
        let program = find("redis-server", &[])?;
        let mut command = under(&[], &program);
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &self.addr.port().to_string(),
            "--save",
            "",
            "--dir",
        ]);
        command.arg(self.folder);
        command.args([
            "--appendonly",
            if self.is_durable { "yes" } else { "no" },
            "--appendfsync",
            "always",
        ]);
        let version = version(&program, "--version");
        // The remaining text describes the build.
        Ok((command, version.split(" sha=").next().unwrap_or_default().to_owned()))
    }

    fn etcd(&self) -> Result<(Command, String), String> {
        let program = find("etcd", &[])?;
        let (clients, peers) = (format!("http://{}", self.addr), format!("http://{}", self.peer));
        let mut command = under(&[], &program);
        command.arg("--data-dir").arg(self.folder.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        if !self.is_durable {
            command.arg("--unsafe-no-fsync");
        }
        Ok((command, version(&program, "--version")))
    }

    fn zookeeper(&self) -> Result<(Command, String), String> {
        let java = find("java", &[])?;
        let jar = std::env::var_os("ZOOKEEPER_JAR")
            .map_or_else(|| PathBuf::from(ZOOKEEPER), PathBuf::from);
        let jar = jar.canonicalize().map_err(|_| format!("there is no {}", jar.display()))?;
        let config = self.folder.join("zoo.cfg");
        let text = format!(
            "tickTime=2000\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={}\n\
             admin.enableServer=false\nmaxClientCnxns=0\n",
            self.folder.join("data").display(),
            self.addr.port()
        );
        std::fs::write(&config, text).map_err(|error| error.to_string())?;
        let mut command = under(&[], &java);
        command
            .arg(format!("-Dzookeeper.forceSync={}", if self.is_durable { "yes" } else { "no" }));
        command.arg("-Dzookeeper.jmx.log4j.disable=true").arg("-cp").arg(&jar);
        command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(&config);
        Ok((command, version(&java, "-version")))
    }
}

/// A program in the path, or in one of these folders.
fn find(program: &str, folders: &[PathBuf]) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched = std::env::split_paths(&path).chain(folders.iter().cloned());
    let mut files = searched.map(|folder| folder.join(program));
    files.find(|file| file.is_file()).ok_or_else(|| format!("there is no {program} here"))
}

/// A command that runs as the given user and ends with the bench.
fn under(user: &[OsString], program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]).args(user).arg("--").arg(program);
    command
}

/// The first line that the program prints for this flag.
fn version(program: &Path, flag: &str) -> String {
    let Ok(said) = Command::new(program).arg(flag).output() else {
        return "of no known version".to_owned();
    };
    let all = [said.stdout, said.stderr].concat();
    String::from_utf8_lossy(&all).lines().next().unwrap_or_default().to_owned()
}

/// The first line of ZooKeeper's answer about its state: the version, which no flag prints, and the
/// time of its build.
fn srvr(addr: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"srvr")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.split(['\n', ',', '-']).next().unwrap_or_default().to_owned())
}

/// The number of a user or a group, from its table.
fn id_of(table: &str, name: &str) -> Result<u32, String> {
    let text = std::fs::read_to_string(table).map_err(|error| format!("{table}: {error}"))?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    let id = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    id.ok_or_else(|| format!("there is no {name} in {table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named() {
        assert_eq!(find("no-such-server", &[]), Err("there is no no-such-server here".to_owned()));
        assert!(find("sh", &[]).is_ok());
    }

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(id_of("/etc/passwd", "root"), Ok(0));
        assert!(id_of("/etc/passwd", "no such user").is_err());
    }
}
