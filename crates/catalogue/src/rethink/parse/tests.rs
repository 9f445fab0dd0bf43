//! Tests of the parser's rules. The parsed values are written as JSON.

use super::number::TOO_LONG_FOR_A_NUMBER;
use super::*;
use crate::rethink::compact;

/// The result of parsing `text`: JSON, `nothing`, or `malformed`.
fn result(text: &str) -> String {
    match parse(text) {
        Ok(Some(value)) => compact(&value),
        Ok(None) => "nothing".to_owned(),
        Err(_) => "malformed".to_owned(),
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(result(text), *expected, "{text:?}");
    }
}

#[test]
fn words_are_keywords_numbers_or_texts() {
    check(&[
        ("true", "true"),
        ("FALSE", "false"),
        ("nUlL", "null"),
        ("trues", "\"trues\""),
        ("d", "\"d\""),
        ("-", "\"-\""),
        ("a\u{a0}b", "\"a\u{a0}b\""),
        ("NaN", "\"NaN\""),
        ("Infinity", "\"Infinity\""),
        ("-Infinity", "\"-Infinity\""),
        ("it's", "\"it's\""),
        ("a\"b", "\"a\\\"b\""),
        ("ç€😀", "\"ç€😀\""),
        ("(x)", "\"(x)\""),
        ("\0", "\"\\u0000\""),
    ]);
}

#[test]
fn numbers_follow_json_and_keep_their_form() {
    check(&[
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        ("-0e0", "-0e0"),
        ("1.10", "1.10"),
        ("1E+05", "1E+05"),
        ("18.699999999999996", "18.699999999999996"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775808", "9223372036854775808"),
        ("12345678901234567890", "12345678901234567890"),
        ("1e999", "1e999"),
        ("007", "\"007\""),
        ("-01", "\"-01\""),
        ("00", "\"00\""),
        ("0.", "\"0.\""),
        (".5", "\".5\""),
        ("+1", "\"+1\""),
        ("1e", "\"1e\""),
        ("1e+", "\"1e+\""),
        ("1.e5", "\"1.e5\""),
        ("0x10", "\"0x10\""),
        ("1.0.0", "\"1.0.0\""),
        ("1-2", "\"1-2\""),
        ("1_000", "\"1_000\""),
        ("١", "\"١\""),
    ]);
}

#[test]
fn numbers_have_the_limits_of_rethinks_parser() {
    let longest = "1".repeat(TOO_LONG_FOR_A_NUMBER - 1);
    assert_eq!(parse(&longest), Ok(Some(Value::Number(longest.clone()))));
    let longer = longest + "1";
    assert_eq!(parse(&longer), Ok(Some(Value::Text(longer.clone()))));
    // 2^64 wraps to 0, and a digit after a leading 0 makes the word a text.
    check(&[
        ("18446744073709551616", "18446744073709551616"),
        ("184467440737095516160", "\"184467440737095516160\""),
        ("184467440737095516160.5", "\"184467440737095516160.5\""),
        ("184467440737095516170", "184467440737095516170"),
    ]);
}

#[test]
fn only_blanks_may_follow_the_value() {
    check(&[
        (" lead", "\"lead\""),
        ("trail \t\r\n", "\"trail\""),
        ("a b", "malformed"),
        ("1 2", "malformed"),
        ("[1] [2]", "malformed"),
        ("null null", "malformed"),
        ("a:b", "malformed"),
        ("http://a/b", "malformed"),
        ("foo #c", "malformed"),
        ("foo//c", "malformed"),
        ("[1]/**/", "malformed"),
        ("'use strict';", "malformed"),
        ("a,", "malformed"),
        ("a\u{c}", "malformed"),
        ("\u{c}a", "malformed"),
        ("a\\b", "malformed"),
    ]);
}

#[test]
fn blanks_and_comments_alone_are_nothing() {
    check(&[
        ("", "nothing"),
        (" \t\r\n", "nothing"),
        ("/*c*/", "nothing"),
        ("#tag", "nothing"),
        ("// all\r// of it\n# is", "nothing"),
        ("\u{feff}", "nothing"),
        (")]}'\n", "nothing"),
        (")]}'\n #", "nothing"),
        ("/*c", "malformed"),
        ("/*/", "malformed"),
    ]);
}

#[test]
fn comments_and_guards_are_skipped_at_the_start() {
    check(&[
        ("/*c*/x", "\"x\""),
        ("/***/x", "\"x\""),
        ("//c\nx", "\"x\""),
        ("#c\rx", "\"x\""),
        ("/x", "malformed"),
        ("/", "malformed"),
        ("\u{feff}x", "\"x\""),
        (" \u{feff}x", "\"\u{feff}x\""),
        ("\u{feff}\u{feff}x", "\"\u{feff}x\""),
        (")]}'\n{\"a\":1}", "{\"a\":1}"),
        ("/*c*/ )]}'\n#d\n1", "1"),
        (")]}'{\"a\":1}", "malformed"),
        (")", "\")\""),
        (")]}'\n)]}'\n1", "malformed"),
    ]);
}

#[test]
fn strings_accept_both_quotes_and_any_escape() {
    check(&[
        ("'x y'", "\"x y\""),
        ("\"q\"", "\"q\""),
        ("''", "\"\""),
        ("'a\"b'", "\"a\\\"b\""),
        ("'a\nb\tc'", "\"a\\nb\\tc\""),
        (r"'\t\b\n\r\f\'\x\\\ç\/'", "\"\\t\\b\\n\\r\\f'x\\\\ç/\""),
        ("'a\\\nb'", "\"a\\nb\""),
        (r"'\u00e7\uD83D\uDE00'", "\"ç😀\""),
        (r"'\ud83d'", "\"?\""),
        (r"'\ude00\ud83d'", "\"??\""),
        (r"'\ud83dx\ud83d\u0041'", "\"?x?A\""),
        (r"'\ud83d\ud83d\ude00'", "\"?😀\""),
        (r"'\u12g4'", "malformed"),
        (r"'\ud83d\u12g4'", "malformed"),
        (r"'\u12", "malformed"),
        ("'a", "malformed"),
        ("'a\"", "malformed"),
        ("'a\\", "malformed"),
        ("'a\\'", "malformed"),
        ("\"007\"", "\"007\""),
        ("\"true\"", "\"true\""),
    ]);
}

#[test]
fn lists_accept_semicolons_and_empty_elements() {
    check(&[
        ("[]", "[]"),
        ("[ /*c*/ ]", "[]"),
        ("[1,]", "[1,null]"),
        ("[,]", "[null,null]"),
        ("[,1]", "[null,1]"),
        ("[1;2,'a b';c]", "[1,2,\"a b\",\"c\"]"),
        ("[;]", "[null,null]"),
        ("[[],[1,[]]]", "[[],[1,[]]]"),
        ("[a#c\n,b]", "[\"a\",\"b\"]"),
        ("[1, 2", "malformed"),
        ("[1 2]", "malformed"),
        ("[", "malformed"),
        ("]", "malformed"),
        (",", "malformed"),
        ("[1:2]", "malformed"),
        ("[}", "malformed"),
        ("[=]", "malformed"),
    ]);
}

#[test]
fn objects_accept_unquoted_names_and_other_separators() {
    check(&[
        ("{}", "{}"),
        ("{a:b}", "{\"a\":\"b\"}"),
        ("{a=1;'b c' => [];\"d\"\n:null}", "{\"a\":1,\"b c\":[],\"d\":null}"),
        ("{1:2}", "{\"1\":2}"),
        ("{'':''}", "{\"\":\"\"}"),
        ("{a:1,b:2,a:3}", "{\"a\":3,\"b\":2}"),
        ("{a/*c*/:/*d*/1}", "{\"a\":1}"),
        ("{a:1,}", "malformed"),
        ("{,a:1}", "malformed"),
        ("{a}", "malformed"),
        ("{a:}", "malformed"),
        ("{a:,}", "malformed"),
        ("{a:;b:1}", "malformed"),
        ("{a:1 b:2}", "malformed"),
        ("{a >1}", "malformed"),
        ("{a= >1}", "{\"a\":\">1\"}"),
        ("{bad", "malformed"),
        ("{", "malformed"),
        ("}", "malformed"),
        ("{a:1", "malformed"),
    ]);
}

#[test]
fn depth_and_number_of_values_are_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(parse(&nested(MAX_DEPTH + 1)).unwrap_err().what, "it is nested too deeply");
    assert!(parse(&"{a:".repeat(1_000_000)).is_err());
    let many = |values: usize| format!("[{}]", ",".repeat(values - 2));
    assert!(parse(&many(MAX_VALUES)).is_ok());
    assert_eq!(parse(&many(MAX_VALUES + 1)).unwrap_err().what, "there are too many values");
}

#[test]
fn any_text_parses_or_fails_and_values_round_trip() {
    bolero::check!().with_type::<String>().for_each(|text| match parse(text) {
        Ok(Some(value)) => assert_eq!(parse(&compact(&value)), Ok(Some(value))),
        Ok(None) => (),
        Err(error) => assert!(error.at <= text.len()),
    });
}

/// Random text rarely has structure, so this test combines tokens.
#[test]
fn any_sequence_of_tokens_parses_or_fails_and_values_round_trip() {
    const TOKENS: [&str; 32] = [
        "{", "}", "[", "]", ":", ",", ";", "=", "=>", "\"", "'", "\\", "\\u", "d83d", "de00", "/",
        "/*", "*/", "#", "\n", " ", "a", "null", "TRUE", "-", "0", "17", ".5", "e+1", ")]}'\n",
        "\u{feff}", "😀",
    ];
    bolero::check!().with_type::<Vec<u8>>().for_each(|choices| {
        let text: String = choices.iter().map(|choice| TOKENS[usize::from(choice % 32)]).collect();
        if let Ok(Some(value)) = parse(&text) {
            assert_eq!(parse(&compact(&value)), Ok(Some(value)), "{text:?}");
        }
    });
}
