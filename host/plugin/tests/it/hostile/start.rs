//! What a guest is, before it does anything; how it crashes; and what it calls while it may not.

use std::time::Duration;

use shardmill_plugin::module::Error;
use shardmill_plugin::{Failure, Limits, LoadLimits, Metrics};

use super::{Guest, Host, runtime};
use crate::forge::{component, section, with_core_module};

const BATCH: &str = "shardmill:processor/batch@0.1.0";

async fn refused(bytes: Vec<u8>) -> Error {
    runtime(Metrics::default()).load("hostile.wasm", bytes).await.unwrap_err()
}

#[tokio::test]
async fn every_way_to_crash_ends_the_instance_and_says_how() {
    let crashes = [
        ("(unreachable)", "unreachable"),
        ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "divide by zero"),
        ("(drop (i32.rem_u (i32.const 1) (i32.const 0)))", "divide by zero"),
        ("(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))", "integer overflow"),
        ("(drop (i32.trunc_f64_s (f64.const nan)))", "invalid conversion"),
        ("(drop (i32.trunc_f64_s (f64.const 1e300)))", "integer overflow"),
        ("(drop (i32.load (i32.const 0x7fffffff)))", "out of bounds memory"),
        ("(memory.fill (i32.const 0) (i32.const 1) (i32.const 0x7fffffff))", "out of bounds memory"),
        ("(drop (table.get $table (i32.const 99)))", "out of bounds table"),
        ("(call_indirect (type $nothing) (i32.const 0))", "uninitialized"),
        ("(call_indirect (type $nothing) (i32.const 1))", "indirect call type mismatch"),
        ("(call_indirect (type $nothing) (i32.const 77))", "out of bounds table"),
        ("(call $down)", "call stack exhausted"),
    ];
    let guest = Guest::default().with(
        "(type $nothing (func)) (table $table 5 funcref) (elem (i32.const 1) $number)
        (func $number (result i32) (i32.const 7)) (func $down (call $down))",
    );
    for (crash, said) in crashes {
        let guest = Guest { attack: format!("{crash} (i32.const 1024)"), ..guest.clone() };
        let failure = Host::of(&guest).await.attacked().await;
        let Failure::Trap(trap) = &failure else { panic!("{crash}: {failure:?}") };
        assert!(trap.message.contains(said), "{crash}: {}", trap.message);
        assert!(trap.backtrace.starts_with("0: "), "{crash}: {}", trap.backtrace);
    }
}

#[tokio::test]
async fn a_host_that_is_called_from_the_depth_of_the_stack_has_a_stack_of_its_own() {
    let call = "(call $log (i32.const 2) (i32.const 1024) (i32.const 100) (i32.const 0) (i32.const 0))";
    let guest =
        Guest::attacking("(call $down) (i32.const 1024)").logging().with(&format!("(func $down {call} (call $down))"));
    let failure = Host::of(&guest).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("call stack exhausted")), "{failure:?}");
}

#[tokio::test]
async fn a_guest_that_exits_ends_itself_alone() {
    for (status, said) in [("0", "exited with status 0"), ("1", "exited with status 1")] {
        let guest = Guest::attacking(&format!("(call $exit (i32.const {status})) (i32.const 1024)")).importing(
            "wasi:cli/exit@0.2.6",
            "exit",
            "$exit",
            "(param i32)",
        );
        let failure = Host::of(&guest).await.attacked().await;
        assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains(said)), "{failure:?}");
    }
}

#[tokio::test]
async fn a_guest_cannot_call_the_host_while_the_host_is_at_work_on_it() {
    let realloc = format!(
        "(if (i32.gt_u (local.get $size) (i32.const 200))
            (then (call $log (i32.const 2) (i32.const 1024) (i32.const 1) (i32.const 0) (i32.const 0)))) {}",
        Guest::default().realloc
    );
    let failure = Host::of(&Guest { realloc, ..Guest::default() }.logging()).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("cannot leave")), "{failure:?}");
    let post = "(if (i32.eq (local.get 0) (i32.const 4096))
        (then (call $log (i32.const 2) (i32.const 1024) (i32.const 1) (i32.const 0) (i32.const 0))))";
    let guest = Guest { post: post.to_owned(), ..Guest::attacking("(i32.const 4096)") }.logging();
    let failure = Host::of(&guest).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("cannot leave")), "{failure:?}");
}

#[tokio::test]
async fn realloc_that_answers_with_nonsense_is_a_crash() {
    for (place, said) in [("-16", "beyond end"), ("131072", "beyond end"), ("16385", "not aligned")] {
        let realloc = format!(
            "(if (i32.eq (local.get $size) (i32.const 64)) (then (return (i32.const {place})))) {}",
            Guest::default().realloc
        );
        let failure = Host::of(&Guest { realloc, ..Guest::default() }).await.attacked().await;
        assert!(failure.to_string().contains(said), "{place}: {failure:?}");
    }
}

#[tokio::test]
async fn a_name_that_stands_for_gigabytes_is_shown_as_it_is() {
    // A name of C++'s: each of its parts is twice the one before, and all of it 400 MB. Two more letters would be gigabytes.
    let parts = ('0'..='9').chain('A'..='L').map(|n| format!("S_IS{n}_S{n}_E")).collect::<String>();
    let bomb = format!("_Z1f1AIiiE{parts}");
    let guest =
        Guest::attacking(&format!("(call ${bomb}) (i32.const 1024)")).with(&format!("(func ${bomb} (unreachable))"));
    let failure = Host::of(&guest).await.attacked().await;
    let Failure::Trap(trap) = failure else { panic!("{failure:?}") };
    assert!(trap.backtrace.contains("_Z1f1AIiiE") && trap.backtrace.len() <= 2000, "{}", trap.backtrace);
    // And one of megabytes.
    let long = "x".repeat(90_000);
    let guest =
        Guest::attacking(&format!("(call ${long}) (i32.const 1024)")).with(&format!("(func ${long} (unreachable))"));
    let Failure::Trap(trap) = Host::of(&guest).await.attacked().await else { panic!() };
    assert!(trap.backtrace.len() <= 2000 && trap.to_string().len() < 1000, "{trap:?}");
}

#[tokio::test]
async fn memory_that_threads_would_share_is_refused() {
    let shared = [section(5, &[1, 3, 1, 10])];
    let error = refused(with_core_module(Guest::default().component(), &shared, 1)).await;
    assert!(matches!(&error, Error::Compile { .. }) && error.to_string().contains("threads"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_looked_at() {
    let mut bytes = Guest::default().component();
    // A section of 65 MiB that says nothing.
    bytes.extend(section(0, &[[1, b'x'].as_slice(), &vec![0; 65 << 20]].concat()));
    let text = refused(bytes.clone()).await.to_string();
    assert!(text.contains("67108864 are allowed") && text.contains("limits.plugin-size"), "{text}");
    let limits = LoadLimits { file_bytes: 1 << 30, ..LoadLimits::default() };
    runtime(Metrics::default()).load_within("large.wasm", bytes, &limits).await.unwrap();
}

#[tokio::test]
async fn components_in_components_do_not_multiply() {
    let vector = |items: &[u8], count: usize| [crate::forge::leb(count), items.repeat(count)].concat();
    let mut inner =
        [b"\0asm\x0d\0\x01\0".to_vec(), section(1, b"\0asm\x01\0\0\0"), section(2, &vector(&[0, 0, 0], 1))].concat();
    for _ in 0..10 {
        let instances = section(5, &vector(&[0, 0, 0], 100));
        inner = [b"\0asm\x0d\0\x01\0".to_vec(), section(4, &inner), instances].concat();
    }
    // 10^20 instances of a module, in eleven kilobytes, behind all that a guest has.
    let mut bytes = component(&[], &[BATCH]);
    bytes.extend(section(4, &inner));
    let text = refused(bytes).await.to_string();
    assert!(text.contains("is made of more than") && text.contains("build it of fewer"), "{text}");
}

#[tokio::test]
async fn types_and_components_that_nest_deeper_than_a_stack_are_refused() {
    let nested = |head: u8| section(7, &[&[1][..], &[head, 1, 1].repeat(1_000_000), &[head, 0]].concat());
    for head in [0x41, 0x42] {
        let outside = [b"\0asm\x0d\0\x01\0".to_vec(), nested(head)].concat();
        let within = [b"\0asm\x0d\0\x01\0".to_vec(), section(4, &outside)].concat();
        for bytes in [outside, [component(&[], &[BATCH]), within[8..].to_vec()].concat()] {
            let text = refused(bytes).await.to_string();
            assert!(text.contains("more than 100 deep") && text.contains("hostile.wasm"), "{text}");
        }
    }
    let deep = (0..200)
        .fold(b"\0asm\x0d\0\x01\0".to_vec(), |inner, _| [b"\0asm\x0d\0\x01\0".to_vec(), section(4, &inner)].concat());
    let text = refused([component(&[], &[BATCH]), deep[8..].to_vec()].concat()).await.to_string();
    assert!(text.contains("more than 100 deep"), "{text}");
}

#[tokio::test]
async fn imports_and_exports_of_great_number_and_length_are_refused_in_few_words() {
    let many: Vec<String> = (0..900).map(|number| format!("wasi:sockets/tcp{number}@0.2.6")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let text = refused(component(&many, &[BATCH])).await.to_string();
    assert!(text.contains("wasi:sockets/tcp0@0.2.6") && text.contains("and 880 more") && text.len() < 5000, "{text}");
    let granted: Vec<String> = (0..2000).map(|number| format!("wasi:io/poll@0.2.{number}")).collect();
    let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
    let text = refused(component(&granted, &[BATCH])).await.to_string();
    assert!(text.contains("more than 1000 imports and exports"), "{text}");
    // And in no more memory than a thousand take.
    let millions = [crate::forge::leb(3_000_000), b"\0\0\x05\0".repeat(3_000_000)].concat();
    let text = refused([b"\0asm\x0d\0\x01\0".to_vec(), section(10, &millions)].concat()).await.to_string();
    assert!(text.contains("more than 1000 imports and exports"), "{text}");
    let long = format!("acme:\u{1b}[2J{}/x@1.0.0", "n".repeat(90_000));
    let text = refused(component(&[&long], &[BATCH])).await.to_string();
    assert!(
        text.contains("acme:\\u{1b}[2Jnnn") && text.len() < 5000 && !text.contains('\u{1b}'),
        "{} bytes",
        text.len()
    );
    let text = refused(component(&[], &[&long])).await.to_string();
    assert!(text.contains("is not a processor") && text.len() < 5000, "{} bytes", text.len());
}

#[tokio::test]
async fn a_function_that_is_too_large_is_not_compiled() {
    let body = [&[0][..], &vec![1; 3 << 20], &[0x0b]].concat();
    let entry = [crate::forge::leb(1), crate::forge::leb(body.len()), body].concat();
    let module = [section(1, &[1, 0x60, 0, 0]), section(3, &[1, 0]), section(10, &entry)];
    let text = refused(with_core_module(Guest::default().component(), &module, 1)).await.to_string();
    assert!(text.contains("a function of 3145730 bytes"), "{text}");
}

#[tokio::test]
async fn compiling_ends_for_the_caller_when_its_time_is_over() {
    // A few hundred kilobytes of arithmetic.
    let sum = [0x20, 0, 0x20, 0, 0x7e, 0x42, 7, 0x7c, 0x21, 0].repeat(2000);
    let body = [&[1, 1, 0x7e][..], &sum, &[0x0b]].concat();
    let body = [crate::forge::leb(body.len()), body].concat();
    let count = crate::forge::leb(30);
    let functions = section(3, &[count.as_slice(), &[0].repeat(30)].concat());
    let module = [section(1, &[1, 0x60, 0, 0]), functions, section(10, &[count.as_slice(), &body.repeat(30)].concat())];
    let bytes = with_core_module(Guest::default().component(), &module, 1);
    let runtime = runtime(Metrics::default());
    let limits = LoadLimits { compile_timeout: Duration::from_millis(10), ..LoadLimits::default() };
    let error = runtime.load_within("bomb.wasm", bytes, &limits).await.unwrap_err();
    assert!(matches!(error, Error::CompileTime { .. }), "{error:?}");
    assert!(error.to_string().contains("limits.compile-timeout"), "{error}");
    // Others have their turn all the same.
    runtime.load("good.wasm", Guest::default().component()).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_refuses_to_start_is_gone_and_says_why_within_bounds() {
    let guest = Guest { init: "(i32.const 4096)".to_owned(), ..Guest::default() };
    let refusal = super::Bytes::at(4096).set(0, 1).list(4, 65_536, 60_000);
    let text = format!("(data (i32.const 65536) \"no\\0aERROR{}\")", "x".repeat(1000));
    let host = Host::within(&guest.with(&refusal.data()).with(&text), Limits::default()).await;
    let failure = host.instance().await.unwrap_err();
    let said = failure.to_string();
    assert!(said.contains("no\\nERROR") && said.len() < 2200, "{said}");
    assert_eq!(host.metrics.instances("hostile"), 0);
}
