//! Small programs in C that print what they observe: it must be the same without and with the
//! library.

use std::path::Path;
use std::process::{Command, Output};

use crate::library::{compiled, compiled_by, in_full, with_library};

fn output(program: &Path, arguments: &[&str], is_fast: bool) -> Output {
    let mut command = Command::new(program);
    command.args(arguments);
    if is_fast {
        with_library(&mut command);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a probe without and with the library.
fn compare(name: &str, options: &[&str], arguments: &[&str]) {
    let program = compiled(&format!("probes/{name}.c"), &[&["-pthread"], options].concat());
    let plain = output(&program, arguments, false);
    assert!(plain.status.success(), "without the library: {plain:?}");
    let fast = output(&program, arguments, true);
    let errors = text(&fast.stderr);
    let [lines, expected] = [&fast, &plain].map(|output| text(&output.stdout));
    let mut pairs = expected.lines().zip(lines.lines()).enumerate();
    if let Some((line, (expected, found))) = pairs.find(|(_, (expected, found))| expected != found)
    {
        panic!("{name} {arguments:?}, line {line}: {found:?} instead of {expected:?}; {errors}");
    }
    assert_eq!(fast.status, plain.status, "{name} {arguments:?}: {errors}");
    assert_eq!(lines.len(), expected.len(), "{name} {arguments:?}: {errors}");
}

#[test]
fn the_program_has_all_numbers_of_descriptors() {
    compare("descriptors", &[], &[]);
}

#[test]
fn duplicates_of_an_epoll_are_one() {
    compare("epolls", &[], &[]);
}

#[test]
fn an_epoll_can_be_used_by_two_processes() {
    for way in ["passed", "inherited", "after-fork"] {
        compare("epolls", &[], &[way]);
    }
}

#[test]
fn two_threads_that_read_get_bytes_that_follow_each_other() {
    compare("readers", &["-O2"], &[]);
}

#[test]
fn stdio_of_libc_uses_connections() {
    compare("stdio", &[], &[]);
    compare("stdio", &["-D_FORTIFY_SOURCE=2", "-O2"], &[]);
}

#[test]
fn libraries_that_bind_to_libc_use_connections() {
    let library = compiled("probes/library.c", &["-shared", "-fPIC"]);
    for way in ["deepbind", "dlmopen"] {
        compare("deepbind", &["-ldl"], &[library.to_str().unwrap(), way]);
    }
}

#[test]
fn splice_takes_what_fits_into_a_pipe() {
    compare("pipes", &[], &[]);
}

#[test]
fn a_connection_sends_signals() {
    compare("signals", &[], &[]);
}

#[test]
fn programs_that_the_library_cannot_be_loaded_into_run_without_it() {
    let mut programs = vec![
        compiled("probes/started.c", &[]),
        compiled("probes/started.c", &["-static"]),
        compiled("probes/started.c", &["-fsanitize=address"]),
    ];
    if in_full() {
        programs.push(compiled_by("musl-gcc", "probes/started.c", &[]));
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let interpreter = programs.last().unwrap().display();
    std::fs::write(&script, format!("#!{interpreter} x\n")).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    programs.push(script);
    for program in programs {
        compare("starts", &[], &[program.to_str().unwrap()]);
    }
}

#[test]
fn a_filter_of_system_calls_sees_those_of_the_program_only() {
    for way in ["none", "poll", "select", "level", "edge"] {
        for call in ["prctl", "syscall"] {
            compare("filter", &[], &[way, call]);
        }
    }
}
