//! Debian's docker-registry on a free port of loopback, once a test process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::needs;
use crate::patience::within;
use crate::place;

/// The registry's `host:port`, or nothing where the machine has no docker-registry.
pub fn address() -> Option<&'static str> {
    static ADDRESS: OnceLock<Option<String>> = OnceLock::new();
    ADDRESS.get_or_init(start).as_deref()
}

fn start() -> Option<String> {
    let program = needs::program("docker-registry", "docker-registry")?;
    let files = place::of_this_process("registry");
    let (say, hear) = mpsc::channel();
    // The parent-death signal comes when the thread that started the child ends, not the process: so it is a thread
    // that lives as long as the process, and the registry dies with both.
    thread::spawn(move || {
        for _ in 0..5 {
            let port = free_port().expect("loopback has a free port");
            let files = files.as_path();
            let config = files.join("config.yml");
            fs::write(&config, configuration(files, port)).expect("it was just made");
            let log = fs::File::create(files.join("log")).expect("it was just made");
            let mut child = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--"])
                .arg(&program)
                .arg("serve")
                .arg(&config)
                .env_clear()
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a file can be shared"))
                .stderr(log)
                .spawn()
                .expect("setpriv is essential on Debian");
            // The port was free a moment ago; another process may have it now.
            if within(Duration::from_secs(20), || answers(port).ok().or_else(|| ended(&mut child))) == Some(true) {
                let _ = say.send(format!("localhost:{port}"));
                let _ = child.wait();
                return;
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    });
    Some(hear.recv().expect("docker-registry starts on one of five ports"))
}

fn configuration(files: &Path, port: u16) -> String {
    format!(
        "version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {}}}
  delete: {{enabled: true}}
http: {{addr: '127.0.0.1:{port}'}}
",
        files.join("storage").display()
    )
}

fn ended(child: &mut std::process::Child) -> Option<bool> {
    child.try_wait().expect("it is our child").map(|_| false)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether the distribution API answers there.
fn answers(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /v2/ HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.contains(" 200 ") { Ok(true) } else { Err(io::Error::other(answer)) }
}
