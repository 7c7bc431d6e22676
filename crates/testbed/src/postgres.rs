//! A private Postgres.
//!
//! [`url`] is the database that tests use: the one of `TIDEGATE_TEST_POSTGRES`, or a server of this process, started at the
//! first call. A server ends with its [`Server`] or, however the process ends, with the process: a shell waits for the
//! end of a pipe, ends the server and removes its files.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Names the database that tests use, instead of a server of their own. Its role may create schemas.
pub const VARIABLE: &str = "TIDEGATE_TEST_POSTGRES";

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs the server until the pipe is closed. Its arguments: directory, then the server's command.
const WATCH: &str = r#"dir=$1; shift
"$@" <&- >"$dir/log" 2>&1 &
pid=$!
read -r _
kill -QUIT $pid 2>/dev/null
wait $pid
rm -rf "$dir""#;

/// The database that tests use.
///
/// # Panics
/// If there is neither the variable nor a server to start.
pub fn url() -> String {
    static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start(&[]).expect("a Postgres server starts"));
    std::env::var(VARIABLE).unwrap_or_else(|_| SHARED.url())
}

/// A server with an empty database and a role that is no superuser.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    port: u16,
    settings: Vec<String>,
    watch: Option<Child>,
}

impl Server {
    /// Makes a new server with these settings (`name=value`) beside the usual ones, and starts it.
    pub fn start(settings: &[&str]) -> Result<Self> {
        Self::make(settings)?.populate()
    }

    /// Makes the files of a server.
    fn make(settings: &[&str]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("tidegate-postgres-").tempdir()?.keep();
        let settings = settings.iter().map(|s| (*s).to_owned()).collect();
        let server = Self { dir, port: 5_432, settings, watch: None };
        if is_root()? {
            run(Command::new("chown").arg(user()).arg(&server.dir))?;
        }
        let data = server.data();
        let mut initdb = as_user(&program("initdb")?);
        initdb.args(["--no-sync", "-A", "trust", "-U", "owner", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
        run(&mut initdb)?;
        Ok(server)
    }

    /// Starts it for the first time.
    fn populate(mut self) -> Result<Self> {
        let server = &mut self;
        server.resume()?;
        server.sql("CREATE ROLE tester LOGIN CREATEDB")?;
        server.sql("CREATE DATABASE tests OWNER tester")?;
        Ok(self)
    }

    /// Makes and starts a server that answers on a port of 127.0.0.1, to encrypted connections alone.
    pub fn start_encrypted(certificate: &str, key: &str) -> Result<Self> {
        let mut server = Self::make(&[])?;
        server.port = crate::free_port()?;
        for (name, text) in [("server.pem", certificate), ("server.key", key)] {
            let path = server.data().join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            if is_root()? {
                run(Command::new("chown").arg(user()).arg(&path))?;
            }
        }
        let rules =
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n";
        std::fs::write(server.data().join("pg_hba.conf"), rules)?;
        let port = format!("port={}", server.port);
        let settings =
            ["listen_addresses=127.0.0.1", "ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key"];
        server.settings = settings.into_iter().map(str::to_owned).chain([port]).collect();
        server.populate()
    }

    /// Its port, which a socket has, too.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL of the database.
    pub fn url(&self) -> String {
        format!("postgres://tester@/tests?host={}", self.dir.display())
    }

    /// URL of the database for a superuser.
    pub fn owner_url(&self) -> String {
        format!("postgres://owner@/tests?host={}", self.dir.display())
    }

    /// Starts the server again after it was stopped.
    pub fn resume(&mut self) -> Result<()> {
        ensure!(self.watch.is_none(), "the server runs");
        let mut command = Command::new("sh");
        command.args(["-c", WATCH, "watch"]).arg(&self.dir);
        let server = as_user(&program("postgres")?);
        command.arg(server.get_program()).args(server.get_args());
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.dir);
        // The shell keeps the files if the server is to be started again.
        let usual = ["listen_addresses=", "max_connections=400", "shared_buffers=256MB", "fsync=on"];
        for setting in usual.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        self.watch = Some(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let began = Instant::now();
        while !self.answers() {
            if began.elapsed() > PATIENCE {
                let mut log = String::new();
                std::fs::File::open(self.dir.join("log")).and_then(|mut f| f.read_to_string(&mut log)).ok();
                bail!("the server does not start: {log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stops the server: `fast` as an operator does, or as a crash does.
    pub fn stop(&mut self, fast: bool) -> Result<()> {
        ensure!(self.watch.is_some(), "the server does not run");
        let mode = if fast { "fast" } else { "immediate" };
        let mut stop = as_user(&program("pg_ctl")?);
        run(stop.arg("stop").arg("-w").args(["-m", mode, "-D"]).arg(self.data()))?;
        // Its shell waits for the pipe; ended by force it removes nothing.
        if let Some(mut watch) = self.watch.take() {
            watch.kill()?;
            watch.wait()?;
        }
        Ok(())
    }

    /// Runs a statement as a superuser.
    pub fn sql(&self, text: &str) -> Result<String> {
        self.sql_on("postgres", text)
    }

    /// Runs a statement as a superuser on the database that [`url`](Self::url) names.
    pub fn sql_in_tests(&self, text: &str) -> Result<String> {
        self.sql_on("tests", text)
    }

    fn sql_on(&self, database: &str, text: &str) -> Result<String> {
        let mut psql = Command::new(program("psql")?);
        psql.arg("-h").arg(&self.dir).arg("-p").arg(self.port.to_string());
        psql.args([
            "-U",
            "owner",
            "-d",
            database,
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            text,
        ]);
        run(&mut psql)
    }

    fn answers(&self) -> bool {
        self.sql("SELECT 1").is_ok()
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match self.watch.take() {
            Some(mut watch) => {
                // The end of the pipe.
                drop(watch.stdin.take());
                let _ = watch.wait();
            }
            None => {
                let _ = std::fs::remove_dir_all(&self.dir);
            }
        }
    }
}

/// A program of Postgres, from the path or from where distributions keep it.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|dirs| dirs.flatten().map(|dir| dir.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    places.extend(versions.into_iter().rev());
    let found = places.into_iter().map(|dir| dir.join(name)).find(|p| p.is_file());
    found.with_context(|| format!("`{name}` of Postgres is neither in PATH nor in /usr/lib/postgresql"))
}

/// A command as an ordinary user: Postgres refuses to be root.
fn as_user(program: &Path) -> Command {
    if !is_root().unwrap_or(false) {
        return Command::new(program);
    }
    // It becomes the program, so that signals reach it.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user(), "--regid", user(), "--init-groups", "--"]).arg(program);
    command.current_dir("/");
    command
}

fn user() -> &'static str {
    static USER: LazyLock<&'static str> = LazyLock::new(|| {
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if known.lines().any(|line| line.starts_with("postgres:")) { "postgres" } else { "nobody" }
    });
    &USER
}

fn is_root() -> Result<bool> {
    Ok(run(Command::new("id").arg("-u"))?.trim() == "0")
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
