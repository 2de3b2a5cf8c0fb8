//! `shardmill explain`, as somebody calls it who has seen a code.

use serde_json::{Value, json};
use shardmill_cause::Code;

use crate::row::{Unasked, finish};

/// Words without how they are broken into lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_code_is_explained_in_whichever_letters_and_without_one_all_are_listed() {
    let nobody = Unasked::new();
    for code in Code::all().step_by(20) {
        let told = finish(&nobody, &["explain", &code.name().to_lowercase()]).await;
        assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
        for part in [code.name(), code.title(), code.means(), code.kept(), code.next()] {
            assert!(words(&told.stdout).contains(&words(part)), "{part:?} is not in {}", told.stdout);
        }
        assert!(!told.stdout.contains('\u{1b}'), "nobody looks at colours here");
        let told = finish(&nobody, &["explain", code.name(), "--json"]).await;
        let parts = json!({
            "code": code.name(), "title": code.title(), "means": code.means(), "kept": code.kept(), "do": code.next(),
        });
        assert_eq!(serde_json::from_str::<Value>(&told.stdout).unwrap(), parts);
    }
    let all = finish(&nobody, &["explain"]).await;
    assert!(Code::all().all(|code| all.stdout.contains(&format!("{code}  {}", code.title()))), "{}", all.stdout);
    let unknown = finish(&nobody, &["explain", "SM0O03"]).await;
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("SM0O03") && unknown.stderr.contains("did you mean"), "{}", unknown.stderr);
    nobody.assert("explain");
}
