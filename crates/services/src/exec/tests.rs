//! Real programs behind a real channel.

use std::fs;
use std::time::Duration;

use levada_core::encode_list;
use levada_service::stdio::{Inbox, MAX_PAYLOAD, Message};
use levada_service::testing::{Client, End, invocation};
use levada_service::{Definition, Registry};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::*;

/// Far longer than anything here takes; only keeps a failing test from hanging.
const HANGING: Duration = Duration::from_secs(120);

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

/// Runs `args` with these further parameters, while `talk` plays the client.
async fn run<T>(
    args: &[&str],
    more: &[(&str, &[u8])],
    talk: impl AsyncFnOnce(&mut Client) -> T,
) -> (Result<(), ServiceError>, T) {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(args);
    let pairs = [&[("args", args.as_slice())], more].concat();
    let session = exec.run(invocation(&pairs), stream);
    let both = async { tokio::join!(session, talk(&mut client)) };
    timeout(HANGING, both).await.unwrap()
}

/// Runs a shell script that gets no input, and whose input stays open.
async fn script(text: &str) -> End {
    let (result, end) = run(&["sh", "-c", text], &[], async |client| client.collect().await).await;
    result.unwrap();
    end
}

/// Starts a shell script that prints a number (or several) and then waits; cuts it off by dropping its
/// future, and returns the numbers.
async fn cut_off(text: &str, more: &[(&str, &[u8])]) -> Vec<i32> {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(&["sh", "-c", text]);
    let pairs = [&[("args", args.as_slice())], more].concat();
    let mut session = exec.run(invocation(&pairs), stream);
    let ready = client.collect_until(|end| {
        end.output.ends_with(b"ready\n") || end.output.ends_with(b"ready\r\n")
    });
    let end = tokio::select! {
        end = timeout(HANGING, ready) => end.unwrap(),
        result = &mut session => panic!("{result:?}"),
    };
    drop(session);
    let text = end.text();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether a process is there; a zombie is.
fn there(id: i32) -> bool {
    fs::exists(format!("/proc/{id}")).unwrap()
}

/// Whether a process runs; a zombie does not, nor does one that another reaper has yet to take away.
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
    timeout(HANGING, wait).await.unwrap();
}

/// The program is gone, zombie included; the others do not run any more.
async fn all_gone(ids: &[i32]) {
    assert!(!ids.is_empty());
    until(|| !there(ids[0])).await;
    until(|| !ids.iter().any(|id| runs(*id))).await;
}

/// Byte `at` of what goes through `cat`: no period of a power of two.
fn byte(at: usize) -> u8 {
    (at % 251).to_le_bytes()[0]
}

/// One gigabyte with `LEVADA_TEST_FULL=1`. Neither end holds more than a few messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_goes_through_cat_unchanged() {
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
            let (mut at, mut inbox) = (0, Inbox::new());
            while let Some(message) = inbox.next(receive).await.unwrap() {
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
        let ((), came) = tokio::join!(write, read);
        assert_eq!(came, length);
        send.finish().await.unwrap();
    })
    .await;
    result.unwrap();
}

#[tokio::test]
async fn exit_codes_and_signals_are_carried_over() {
    assert_eq!(script("exit 0").await.exit, Some(0));
    assert_eq!(script("exit 7").await.exit, Some(7));
    assert_eq!(script("exit 255").await.exit, Some(255));
    assert_eq!(script("kill -TERM $$").await.exit, Some(128 + 15));
    assert_eq!(script("kill -KILL $$").await.exit, Some(128 + 9));
}

#[tokio::test]
async fn output_and_error_are_apart() {
    let end = script("echo out; echo err >&2; exit 3").await;
    assert_eq!((end.output, end.error, end.exit), (b"out\n".into(), b"err\n".into(), Some(3)));
}

#[tokio::test]
async fn the_program_sees_its_environment_directory_name_and_nothing_else() {
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

#[tokio::test]
async fn what_is_not_allowed_is_refused_when_it_starts_too() {
    let variable = ("env.LD_PRELOAD", b"x".as_slice());
    let refused = [
        (["rm"].as_slice(), [].as_slice()),
        (&["cat", "/etc/passwd"], &[]),
        (&["cat"], &[variable]),
        (&[], &[]),
    ];
    for (args, more) in refused {
        let (result, end) = run(args, more, async |client| client.collect().await).await;
        assert!(matches!(result, Err(ServiceError::Refused(_))), "{args:?}");
        assert_eq!((end.exit, end.failure.is_some(), end.output.len()), (Some(120), true, 0));
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
        let (result, end) = tokio::join!(exec.run(invocation(&pairs), stream), client.collect());
        assert!(matches!(result, Err(ServiceError::Failed(_))), "{result:?}");
        assert!(end.failure.unwrap().contains("No such file"));
        assert_eq!(end.exit, Some(120));
    }
}

#[tokio::test]
async fn the_end_comes_at_once_though_the_input_stays_open() {
    assert_eq!(script("echo done").await.output, b"done\n");
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_hold_up_the_end() {
    let (result, end) = run(&["sh", "-c", "sleep 0.2; exit 4"], &[], async |client| {
        let (send, receive) = client.halves();
        let write = async {
            let message = Message::Data(&[0; MAX_PAYLOAD]).to_bytes();
            // Far more than the pipe takes; after the end it is discarded or refused.
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
async fn a_program_that_closes_its_input_is_no_error() {
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
async fn all_output_arrives_before_the_end_however_slowly_it_is_read() {
    let (result, end) = run(&["sh", "-c", "head -c 1500000 /dev/zero"], &[], async |client| {
        // Longer than others may keep the output open.
        sleep(Duration::from_millis(500)).await;
        client.collect().await
    })
    .await;
    result.unwrap();
    assert_eq!((end.output.len(), end.exit), (1_500_000, Some(0)));
}

#[tokio::test]
async fn those_who_keep_the_output_open_do_not_hold_up_the_end_and_are_killed() {
    let end = script("sleep 1000 & echo $!; exit 6").await;
    assert_eq!(end.exit, Some(6));
    let left: i32 = end.text().trim().parse().unwrap();
    until(|| !runs(left)).await;
    // The same with one that never stops writing.
    let end = script("yes & exit 6").await;
    assert_eq!(end.exit, Some(6));
}

#[tokio::test]
async fn the_hang_up_can_be_heard() {
    // As in a node. What the tests were started with, such as nohup, may ignore it, and a program would inherit that.
    let _not_ignored = signal(SignalKind::hangup()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heard");
    let text = format!(
        "trap 'echo farewell; echo heard >{}; exit' HUP; echo $$ ready; while :; do sleep 0.01; done",
        file.display()
    );
    let ids = cut_off(&text, &[]).await;
    all_gone(&ids).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "heard\n");
}

#[tokio::test]
async fn who_ignores_the_hang_up_is_killed() {
    let ids = cut_off("trap '' HUP TERM INT; sleep 1000 & echo $$ $! ready; sleep 1000", &[]).await;
    assert_eq!(ids.len(), 2);
    all_gone(&ids).await;
}

#[tokio::test]
async fn a_stopped_program_is_killed() {
    let ids = cut_off("echo $$ ready; kill -STOP $$", &[]).await;
    all_gone(&ids).await;
}

#[tokio::test]
async fn who_leaves_the_process_group_is_killed_too() {
    let text = "trap '' HUP; echo $$; setsid sh -c 'trap \"\" HUP; sleep 1000 & echo $! $$ ready; sleep 1000' & wait";
    let ids = cut_off(text, &[]).await;
    assert_eq!(ids.len(), 3);
    all_gone(&ids).await;
}

#[tokio::test]
async fn jobs_of_a_shell_on_a_terminal_are_killed() {
    let text = "trap '' HUP; set -m; sleep 1000 & echo $$ $! ready; sleep 1000";
    let ids = cut_off(text, &[("pty", b"24 80")]).await;
    assert_eq!(ids.len(), 2);
    all_gone(&ids).await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_program() {
    let exec = exec();
    for finish in [false, true] {
        let (mut client, stream) = Client::pair().await;
        let args = encode_list(&["sh", "-c", "trap '' HUP; echo $$; sleep 1000"]);
        let talk = async {
            let end = client.collect_until(|end| end.output.ends_with(b"\n")).await;
            let (mut send, mut receive) = client.split();
            if finish {
                send.finish().await.unwrap();
                while let Ok(Some(_)) = receive.receive(1 << 20).await {}
            }
            end
        };
        let session = exec.run(invocation(&[("args", &args)]), stream);
        let (result, end) = timeout(HANGING, async { tokio::join!(session, talk) }).await.unwrap();
        assert!(matches!(result, Err(ServiceError::Gone | ServiceError::Stream(_))));
        all_gone(&[end.text().trim().parse().unwrap()]).await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_is_noticed_while_the_program_takes_no_input() {
    let exec = exec();
    let (mut client, stream) = Client::pair().await;
    let args = encode_list(&["sh", "-c", "echo $$; exec sleep 1000"]);
    let talk = async {
        let end = client.collect_until(|end| end.output.ends_with(b"\n")).await;
        let message = Message::Data(&[0; MAX_PAYLOAD]).to_bytes();
        // Until neither the pipe nor the stream takes any more.
        let (send, _) = client.halves();
        while timeout(Duration::from_millis(200), send.send(&message)).await.is_ok() {}
        drop(client);
        end
    };
    let session = exec.run(invocation(&[("args", &args)]), stream);
    let (result, end) = timeout(HANGING, async { tokio::join!(session, talk) }).await.unwrap();
    assert!(matches!(result, Err(ServiceError::Stream(_))), "{result:?}");
    all_gone(&[end.text().trim().parse().unwrap()]).await;
}

#[tokio::test]
async fn a_wrong_message_ends_the_program() {
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
async fn a_terminal_has_the_size_that_was_asked_for() {
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
async fn a_terminal_takes_control_characters_and_the_end_of_input() {
    // Where tests run in the background of a script SIGINT is ignored, unless it is handled (execve(2)).
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
fn a_runtime_that_ends_takes_its_programs_along() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids = runtime.block_on(cut_off("trap '' HUP; echo $$ ready; sleep 1000", &[]));
    drop(runtime);
    let wait = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    wait.block_on(until(|| !ids.iter().any(|id| runs(*id))));
}

#[test]
fn definitions_of_the_documentation_are_accepted() {
    let text = "name = 'exec'\ntype = 'exec'\n[[command]]\nprogram = 'uname'\nargs = '.*'\n\
                [[command]]\nprogram = 'date'\nargs = '-u|\\+.*'\n[[command]]\nprogram = 'cat'";
    let registry = Registry::new(vec![exec_type()]);
    let definition = Definition::from_toml(text, &registry).unwrap();
    let service = registry.build(&definition, &levada_service::testing::context()).unwrap();
    let check = |args: &[&str]| {
        service.check(&levada_service::testing::params(&[("args", &encode_list(args))]), true)
    };
    assert!(check(&["uname", "-a"]).is_ok() && check(&["date", "-u", "+%s"]).is_ok());
    assert!(check(&["date", "-s", "x"]).is_err() && check(&["cat", "x"]).is_err());
}
