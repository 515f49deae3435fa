//! What `cm_server` and `cm_client` send each other: a text of 16 bytes.

/// How many bytes a message has.
pub const LEN: usize = 16;

/// A text as a message, with zeroes behind it.
pub fn message(text: &str) -> Vec<u8> {
    let mut message = text.as_bytes().to_vec();
    message.resize(LEN, 0);
    message
}

/// What a message says. The C programs send zeroes.
pub fn text(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    match text.trim_end_matches('\0') {
        "" => format!("{} zeroes", message.len()),
        text => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_silence_has_a_name() {
        assert_eq!(message("hello").len(), LEN);
        assert_eq!(text(&message("hello")), "\"hello\"");
        assert_eq!(text(&[0; LEN]), "16 zeroes");
        assert_eq!(text(&[0xff]), "\"\u{fffd}\"");
    }
}
