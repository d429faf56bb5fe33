/**
 * Write text for files and pages, which may not hold every character: control characters become their pictures, such as ␀ for U+0000, and what no XML, no
 * terminal or no UTF-8 may hold (U+007F to U+009F, half characters, U+FFFE, U+FFFF) becomes U+FFFD. Line feed, tab and carriage return stay.
 */
export function visible(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, letter =>
      String.fromCharCode(0x2400 + letter.charCodeAt(0))
    )
    .replace(/[\u007f-\u009f\ufffe\uffff]|\p{Cs}/gu, '\ufffd');
}
