//! A private Redis server.
//!
//! It ends with its [`Server`] or, however the process ends, with the process: a shell waits for the end of a pipe, ends the
//! server and removes its files.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the server until the pipe is closed. Its arguments: directory, then the server's command.
const WATCH: &str = r#"dir=$1; shift
"$@" <&- >"$dir/log" 2>&1 &
pid=$!
echo $pid >"$dir/pid.new" && mv "$dir/pid.new" "$dir/pid"
read -r _
kill -CONT $pid 2>/dev/null
kill -KILL $pid 2>/dev/null
wait $pid
rm -rf "$dir""#;

/// A server that keeps nothing on disk, on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    port: u16,
    settings: Vec<String>,
    watch: Option<Child>,
}

impl Server {
    /// Starts a server with these settings (`name value`) beside the usual ones.
    pub fn start(settings: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("tidegate-redis-").tempdir()?.keep();
        let port = crate::free_port()?;
        let settings = settings.iter().map(|s| (*s).to_owned()).collect();
        let mut server = Self { dir, port, settings, watch: None };
        server.resume()?;
        Ok(server)
    }

    /// Starts a replica of this one, which has taken over everything.
    pub fn replica(&self) -> Result<Self> {
        let replica =
            Self::start(&[&format!("replicaof 127.0.0.1 {}", self.port), "repl-diskless-sync-delay 0"])?;
        let began = Instant::now();
        while self.command("WAIT 1 100")? != ":1" {
            ensure!(began.elapsed() < PATIENCE, "the replica does not follow");
        }
        Ok(replica)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Starts it again after it was stopped, empty and on the same port.
    pub fn resume(&mut self) -> Result<()> {
        ensure!(self.watch.is_none(), "the server runs");
        std::fs::create_dir_all(&self.dir)?;
        let mut command = Command::new("sh");
        command.args(["-c", WATCH, "watch"]).arg(&self.dir).arg("redis-server");
        command.args(["--bind", "127.0.0.1", "--port"]).arg(self.port.to_string());
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(&self.dir);
        for setting in &self.settings {
            let (name, value) =
                setting.split_once(' ').with_context(|| format!("no value in {setting:?}"))?;
            command.arg(format!("--{name}")).arg(value);
        }
        self.watch = Some(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let began = Instant::now();
        while self.command("PING").is_err() {
            if began.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("the server does not start: {log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends it as a crash does; what it held is gone.
    pub fn stop(&mut self) -> Result<()> {
        let mut watch = self.watch.take().context("the server does not run")?;
        drop(watch.stdin.take());
        watch.wait()?;
        Ok(())
    }

    /// Its process, to be paused or killed.
    pub fn pid(&self) -> Result<u32> {
        Ok(std::fs::read_to_string(self.dir.join("pid"))?.trim().parse()?)
    }

    /// Sends a command of words without spaces, and returns the first line of the answer.
    pub fn command(&self, words: &str) -> Result<String> {
        self.converse(words).map(|(line, _)| line)
    }

    /// Sends a command of words without spaces, and returns the text that it is answered with.
    pub fn answer(&self, words: &str) -> Result<String> {
        let (line, mut stream) = self.converse(words)?;
        let length: usize = line.strip_prefix('$').context("the answer is no text")?.parse()?;
        let mut text = vec![0; length];
        stream.read_exact(&mut text)?;
        Ok(String::from_utf8(text)?)
    }

    fn converse(&self, words: &str) -> Result<(String, TcpStream)> {
        let address: SocketAddr = ([127, 0, 0, 1], self.port).into();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer)?.trim_end().to_owned();
        ensure!(answer.starts_with(['+', ':', '$', '*']), "{words}: {answer}");
        Ok((answer, stream))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.watch.is_some() {
            let _ = self.stop();
        } else {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// A cluster of servers that have the slots in equal parts, each with a replica if wanted.
#[derive(Debug)]
pub struct Cluster {
    /// Those that had the slots at first.
    pub masters: Vec<Server>,
    /// Their replicas.
    pub replicas: Vec<Server>,
}

/// Slots of a cluster.
const SLOTS: usize = 16_384;

impl Cluster {
    /// Starts `masters` servers, each with `replicas` others that take its place (0 or 1), and waits until all agree.
    pub fn start(masters: usize, replicas: usize) -> Result<Self> {
        let settings =
            ["cluster-enabled yes", "cluster-node-timeout 1000", "cluster-replica-validity-factor 0"];
        let start = |n: usize| (0..n).map(|_| Server::start(&settings)).collect::<Result<Vec<_>>>();
        let cluster = Self { masters: start(masters)?, replicas: start(masters * replicas.min(1))? };
        for (n, master) in cluster.masters.iter().enumerate() {
            let (first, last) = (n * SLOTS / masters, (n + 1) * SLOTS / masters - 1);
            master.command(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            master.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1))?;
        }
        for server in cluster.all().skip(1) {
            server.command(&format!("CLUSTER MEET 127.0.0.1 {}", cluster.masters[0].port))?;
        }
        cluster.agree(|info| info.contains(&format!("cluster_known_nodes:{}\r", cluster.all().count())))?;
        for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
            let id = master.answer("CLUSTER MYID")?;
            // Until it has heard of the master from others it refuses.
            until(|| replica.command(&format!("CLUSTER REPLICATE {id}")).is_ok(), || "no replica".into())?;
        }
        cluster.agree(|info| info.contains("cluster_state:ok"))?;
        Ok(cluster)
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// An address that names every server.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.all().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        format!("redis://{}/", hosts.join(","))
    }

    fn agree(&self, on: impl Fn(&str) -> bool) -> Result<()> {
        for server in self.all() {
            let said = || server.answer("CLUSTER INFO").unwrap_or_default();
            until(|| on(&said()), said)?;
        }
        Ok(())
    }
}

/// Waits for something that another process does.
fn until(mut is: impl FnMut() -> bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    let began = Instant::now();
    while !is() {
        if began.elapsed() > PATIENCE {
            bail!("the cluster does not come together: {}", otherwise());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
