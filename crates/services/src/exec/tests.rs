//! Real programs behind a real channel.

use std::fs;
use std::time::Duration;

use levada_core::encode_list;
use levada_service::Registry;
use levada_service::stdio::{MAX_PAYLOAD, Message, MessageReader};
use levada_service::testing::{Client, End, params, run as run_service};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::*;

/// Far longer than any step takes; only keeps a failing test from hanging.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

fn exec() -> Exec {
    let text = r#"
        client_environment = ["TERM", "GREETING"]
        environment = { GREETING = "ours", KEPT = "kept" }
        directory = "/"
        command = [
            { program = "cat" },
            { program = "sh", args = "(?s).*" },
            { program = "stty", args = "size" },
        ]
    "#;
    Exec::new(toml::from_str(text).unwrap())
}

/// Runs `args` with these further parameters, while `client_side` plays the client.
async fn run<T>(
    args: &[&str],
    more: &[(&str, &[u8])],
    client_side: impl AsyncFnOnce(&mut Client) -> T,
) -> (Result<(), ServiceError>, T) {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(args);
    let pairs = [&[("args", args.as_slice())], more].concat();
    let session = run_service(&exec, &pairs, stream);
    let both = async { tokio::join!(session, client_side(&mut client)) };
    timeout(TEST_TIMEOUT, both).await.unwrap()
}

/// Runs a shell script without input, whose input stays open.
async fn script(text: &str) -> End {
    let (result, end) = run(&["sh", "-c", text], &[], async |client| client.collect().await).await;
    result.unwrap();
    end
}

/// Starts a shell script that prints numbers and then waits, drops its future, and returns the
/// numbers.
async fn start_and_drop(text: &str, more: &[(&str, &[u8])]) -> Vec<i32> {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(&["sh", "-c", text]);
    let pairs = [&[("args", args.as_slice())], more].concat();
    let mut session = run_service(&exec, &pairs, stream);
    let ready = client.collect_until(|end| {
        end.output.ends_with(b"ready\n") || end.output.ends_with(b"ready\r\n")
    });
    let end = tokio::select! {
        end = timeout(TEST_TIMEOUT, ready) => end.unwrap(),
        result = &mut session => panic!("{result:?}"),
    };
    drop(session);
    let text = end.text();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether a process exists, also as a zombie.
fn exists(id: i32) -> bool {
    fs::exists(format!("/proc/{id}")).unwrap()
}

/// Whether a process runs; a zombie does not.
fn runs(id: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, wait).await.unwrap();
}

/// Waits until the program has been reaped and the others have ended.
async fn all_gone(ids: &[i32]) {
    assert!(!ids.is_empty());
    until(|| !exists(ids[0])).await;
    until(|| !ids.iter().any(|id| runs(*id))).await;
}

/// Byte `at` of the data for `cat`: the period is not a power of two.
fn byte(at: usize) -> u8 {
    (at % 251).to_le_bytes()[0]
}

/// One gigabyte with `LEVADA_TEST_FULL=1`. Neither end buffers more than a few messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cat_returns_its_input_unchanged() {
    let full = std::env::var_os("LEVADA_TEST_FULL").is_some();
    let length = if full { 1 << 30 } else { 16 << 20 };
    let source: Vec<u8> = (0..MAX_PAYLOAD + 251).map(byte).collect();
    let (result, ()) = run(&["cat"], &[], async |client| {
        let (send, receive) = client.halves();
        let write = async {
            let mut message = Vec::new();
            for start in (0..length).step_by(MAX_PAYLOAD) {
                message.clear();
                let part = &source[start % 251..][..MAX_PAYLOAD.min(length - start)];
                Message::Data(part).encode(&mut message);
                send.send(&message).await.unwrap();
            }
            send.send(&Message::End.to_bytes()).await.unwrap();
        };
        let read = async {
            let mut at = 0;
            let mut reader = MessageReader::new();
            while let Some(message) = reader.next(receive).await.unwrap() {
                match message {
                    Message::Data(part) => {
                        assert!(part == &source[at % 251..][..part.len()], "{at}");
                        at += part.len();
                    }
                    Message::Exit(0) => return at,
                    other => panic!("{other:?}"),
                }
            }
            panic!("no exit code");
        };
        let ((), received) = tokio::join!(write, read);
        assert_eq!(received, length);
        send.finish().await.unwrap();
    })
    .await;
    result.unwrap();
}

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    assert_eq!(script("exit 0").await.exit, Some(0));
    assert_eq!(script("exit 7").await.exit, Some(7));
    assert_eq!(script("exit 255").await.exit, Some(255));
    assert_eq!(script("kill -TERM $$").await.exit, Some(128 + 15));
    assert_eq!(script("kill -KILL $$").await.exit, Some(128 + 9));
}

#[tokio::test]
async fn output_and_error_are_separate() {
    let end = script("echo out; echo err >&2; exit 3").await;
    assert_eq!((end.output, end.error, end.exit), (b"out\n".into(), b"err\n".into(), Some(3)));
}

#[tokio::test]
async fn the_program_has_only_its_environment_directory_and_name() {
    let print = "echo $0 $PWD $GREETING $KEPT; env | cut -d= -f1 | sort | tr '\\n' ' '";
    let (result, end) = run(&["sh", "-c", print], &[("env.GREETING", b"theirs")], async |client| {
        client.collect().await
    })
    .await;
    result.unwrap();
    let text = end.text();
    let (first, names) = text.split_once('\n').unwrap();
    assert_eq!(first, "sh / theirs kept");
    for name in names.split_whitespace() {
        let known =
            ["GREETING", "KEPT", "PATH", "HOME", "LANG", "USER", "PWD", "OLDPWD", "SHLVL", "_"];
        assert!(known.contains(&name), "{name}");
    }
}

#[test]
fn parameters_that_are_not_allowed_are_refused_at_the_start_too() {
    let variable = ("env.LD_PRELOAD", b"x".as_slice());
    let refused = [
        (["rm"].as_slice(), [].as_slice()),
        (&["cat", "/etc/passwd"], &[]),
        (&["cat"], &[variable]),
        (&[], &[]),
    ];
    for (args, more) in refused {
        let args = encode_list(args);
        let pairs = [&[("args", args.as_slice())], more].concat();
        assert!(exec().prepare(&params(&pairs), Over::Stream).is_err(), "{args:?}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_start_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program");
    fs::write(&file, "\0").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&file, mode).unwrap();
    let text = format!("[[command]]\nprogram = '{}'", file.display());
    let exec = Exec::new(toml::from_str(&text).unwrap());
    fs::remove_file(&file).unwrap();
    for terminal in [false, true] {
        let (mut client, stream) = Client::pair().await;
        let args = encode_list(&[file.to_str().unwrap()]);
        let mut pairs = vec![("args", args.as_slice())];
        if terminal {
            pairs.push(("pty", b"24 80"));
        }
        let (result, end) = tokio::join!(run_service(&exec, &pairs, stream), client.collect());
        assert!(matches!(result, Err(ServiceError::Failed(_))), "{result:?}");
        assert!(end.failure.unwrap().contains("No such file"));
        assert_eq!(end.exit, Some(120));
    }
}

#[tokio::test]
async fn the_session_ends_while_the_input_is_open() {
    assert_eq!(script("echo done").await.output, b"done\n");
}

#[tokio::test]
async fn unread_input_does_not_delay_the_end() {
    let (result, end) = run(&["sh", "-c", "sleep 0.2; exit 4"], &[], async |client| {
        let (send, receive) = client.halves();
        let write = async {
            let message = Message::Data(&[0; MAX_PAYLOAD]).to_bytes();
            // Far more than fits into the pipe; after the end it is discarded or refused.
            for _ in 0..64 {
                if send.send(&message).await.is_err() {
                    break;
                }
            }
        };
        let ((), end) = tokio::join!(write, End::collect(receive));
        send.finish().await.unwrap();
        end
    })
    .await;
    result.unwrap();
    assert_eq!(end.exit, Some(4));
}

#[tokio::test]
async fn a_program_that_closes_its_input_is_not_an_error() {
    let (result, end) =
        run(&["sh", "-c", "exec <&-; echo closed; sleep 0.2; exit 5"], &[], async |client| {
            client.collect_until(|end| end.output == b"closed\n").await;
            client.send(Message::Data(&[0; MAX_PAYLOAD])).await;
            client.send(Message::Data(&[0; MAX_PAYLOAD])).await;
            client.collect().await
        })
        .await;
    result.unwrap();
    assert_eq!(end.exit, Some(5));
}

#[tokio::test]
async fn all_output_arrives_before_the_end_with_a_slow_reader() {
    let (result, end) = run(&["sh", "-c", "head -c 1500000 /dev/zero"], &[], async |client| {
        // Longer than descendants may keep the output open.
        sleep(Duration::from_millis(500)).await;
        client.collect().await
    })
    .await;
    result.unwrap();
    assert_eq!((end.output.len(), end.exit), (1_500_000, Some(0)));
}

#[tokio::test]
async fn descendants_with_the_output_open_do_not_delay_the_end_and_are_killed() {
    let end = script("sleep 1000 & echo $!; exit 6").await;
    assert_eq!(end.exit, Some(6));
    let left: i32 = end.text().trim().parse().unwrap();
    until(|| !runs(left)).await;
    // The same with one that never stops writing.
    let end = script("yes & exit 6").await;
    assert_eq!(end.exit, Some(6));
}

#[tokio::test]
async fn a_program_can_handle_the_hangup() {
    // As in a node. `nohup` ignores SIGHUP in the tests, and a program would inherit that.
    let _not_ignored = signal(SignalKind::hangup()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("handled");
    let text = format!(
        "trap 'echo bye; echo handled >{}; exit' HUP; echo $$ ready; while :; do sleep 0.01; done",
        file.display()
    );
    let ids = start_and_drop(&text, &[]).await;
    all_gone(&ids).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "handled\n");
}

#[tokio::test]
async fn processes_that_ignore_the_hangup_are_killed() {
    let ids =
        start_and_drop("trap '' HUP TERM INT; sleep 1000 & echo $$ $! ready; sleep 1000", &[])
            .await;
    assert_eq!(ids.len(), 2);
    all_gone(&ids).await;
}

#[tokio::test]
async fn a_stopped_program_is_killed() {
    let ids = start_and_drop("echo $$ ready; kill -STOP $$", &[]).await;
    all_gone(&ids).await;
}

#[tokio::test]
async fn processes_outside_the_process_group_are_killed() {
    let text = "trap '' HUP; echo $$; setsid sh -c 'trap \"\" HUP; sleep 1000 & echo $! $$ ready; sleep 1000' & wait";
    let ids = start_and_drop(text, &[]).await;
    assert_eq!(ids.len(), 3);
    all_gone(&ids).await;
}

#[tokio::test]
async fn jobs_of_a_shell_on_a_terminal_are_killed() {
    let text = "trap '' HUP; set -m; sleep 1000 & echo $$ $! ready; sleep 1000";
    let ids = start_and_drop(text, &[("pty", b"24 80")]).await;
    assert_eq!(ids.len(), 2);
    all_gone(&ids).await;
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_program() {
    let exec = exec();
    for finish in [false, true] {
        let (mut client, stream) = Client::pair().await;
        let args = encode_list(&["sh", "-c", "trap '' HUP; echo $$; sleep 1000"]);
        let client_side = async {
            let end = client.collect_until(|end| end.output.ends_with(b"\n")).await;
            let (mut send, mut receive) = client.split();
            if finish {
                send.finish().await.unwrap();
                while let Ok(Some(_)) = receive.receive(1 << 20).await {}
            }
            end
        };
        let session = run_service(&exec, &[("args", &args)], stream);
        let (result, end) =
            timeout(TEST_TIMEOUT, async { tokio::join!(session, client_side) }).await.unwrap();
        assert!(matches!(result, Err(ServiceError::Gone | ServiceError::Stream(_))));
        all_gone(&[end.text().trim().parse().unwrap()]).await;
    }
}

#[tokio::test]
async fn a_disconnect_is_detected_while_the_program_reads_no_input() {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(&["sh", "-c", "echo $$; exec sleep 1000"]);
    let client_side = async {
        let end = client.collect_until(|end| end.output.ends_with(b"\n")).await;
        let message = Message::Data(&[0; MAX_PAYLOAD]).to_bytes();
        // Until the pipe and the stream are full.
        let (send, _) = client.halves();
        while timeout(Duration::from_millis(200), send.send(&message)).await.is_ok() {}
        drop(client);
        end
    };
    let session = run_service(&exec, &[("args", &args)], stream);
    let (result, end) =
        timeout(TEST_TIMEOUT, async { tokio::join!(session, client_side) }).await.unwrap();
    assert!(matches!(result, Err(ServiceError::Stream(_))), "{result:?}");
    all_gone(&[end.text().trim().parse().unwrap()]).await;
}

#[tokio::test]
async fn an_invalid_message_ends_the_program() {
    let wrong: [&[u8]; 3] = [&[3, 0], &[9], &[0; MAX_PAYLOAD + 2]];
    for message in wrong {
        let (result, end) = run(&["cat"], &[], async |client| {
            client.send_raw(message).await;
            client.collect().await
        })
        .await;
        assert!(result.is_err());
        assert_eq!(end.exit, None);
    }
}

#[tokio::test]
async fn a_terminal_has_the_requested_size() {
    let (result, end) =
        run(&["stty", "size"], &[("pty", b"33 101")], async |client| client.collect().await).await;
    result.unwrap();
    assert_eq!((end.text().as_str(), end.exit), ("33 101\r\n", Some(0)));
}

#[tokio::test]
async fn a_terminal_changes_its_size() {
    let text = "trap 'stty size; exit 9' WINCH; echo ready; while :; do sleep 0.01; done";
    let (result, end) = run(&["sh", "-c", text], &[("pty", b"24 80")], async |client| {
        client.collect_until(|end| end.output.ends_with(b"ready\r\n")).await;
        client.window(50, 120).await;
        client.collect().await
    })
    .await;
    result.unwrap();
    assert_eq!((end.text().as_str(), end.exit), ("50 120\r\n", Some(9)));
}

#[tokio::test]
async fn a_terminal_handles_control_characters_and_the_end_of_input() {
    // Where tests run in the background of a script SIGINT is ignored, unless it is handled
    // (execve(2)).
    let _handled = signal(SignalKind::interrupt()).unwrap();
    let size: &[(&str, &[u8])] = &[("pty", b"24 80"), ("env.TERM", b"vt100")];
    let (result, end) = run(&["sh", "-c", "echo $TERM; exec sleep 1000"], size, async |client| {
        client.collect_until(|end| end.output == b"vt100\r\n").await;
        client.send(Message::Data(b"\x03")).await;
        client.collect().await
    })
    .await;
    result.unwrap();
    assert_eq!(end.exit, Some(128 + 2));
    for typed in ["a\n", "a"] {
        let (result, end) = run(&["cat"], size, async |client| {
            client.send(Message::Data(typed.as_bytes())).await;
            client.finish_and_collect().await
        })
        .await;
        result.unwrap();
        assert_eq!(end.exit, Some(0));
        assert_eq!(end.text().matches('a').count(), 2, "echoed, then printed");
    }
}

#[tokio::test]
async fn pipes_ignore_a_window() {
    let (result, end) = run(&["cat"], &[], async |client| {
        client.window(24, 80).await;
        client.send(Message::Data(b"x")).await;
        client.finish_and_collect().await
    })
    .await;
    result.unwrap();
    assert_eq!((end.output.as_slice(), end.exit), (b"x".as_slice(), Some(0)));
}

#[test]
fn the_end_of_a_runtime_ends_its_programs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids = runtime.block_on(start_and_drop("trap '' HUP; echo $$ ready; sleep 1000", &[]));
    drop(runtime);
    let wait = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    wait.block_on(until(|| !ids.iter().any(|id| runs(*id))));
}

#[test]
fn definitions_of_the_documentation_are_accepted() {
    let text = "name = 'exec'\ntype = 'exec'\n[[command]]\nprogram = 'uname'\nargs = '.*'\n\
                [[command]]\nprogram = 'date'\nargs = '-u|\\+.*'\n[[command]]\nprogram = 'cat'";
    let registry = Registry::new(vec![exec_type()]);
    let definition = registry.parse(text).unwrap();
    let service = registry.build(&definition, &levada_service::testing::context()).unwrap();
    let check =
        |args: &[&str]| service.prepare(&params(&[("args", &encode_list(args))]), Over::Stream);
    assert!(check(&["uname", "-a"]).is_ok() && check(&["date", "-u", "+%s"]).is_ok());
    assert!(check(&["date", "-s", "x"]).is_err() && check(&["cat", "x"]).is_err());
}
