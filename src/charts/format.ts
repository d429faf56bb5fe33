/**
 * Write text for files and pages, which may not hold every character: control characters become their
 * pictures, such as ␀ for U+0000, and what no XML, no terminal or no UTF-8 may hold (U+007F to U+009F, half
 * characters, U+FFFE, U+FFFF) becomes U+FFFD. Line feed, tab and carriage return stay.
 */
export function visible(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, letter =>
      String.fromCharCode(0x2400 + letter.charCodeAt(0))
    )
    .replace(/[\u007f-\u009f\ufffe\uffff]|\p{Cs}/gu, '\ufffd');
}

/** A thin space at which no line breaks. */
const THIN_SPACE = '\u202f';
const MINUS = '\u2212';

/** Say a non-finite number, or null when it is finite. */
function nonFinite(value: number): string | null {
  if (Number.isNaN(value)) {
    return 'NaN';
  }
  return Number.isFinite(value) ? null : value > 0 ? '∞' : `${MINUS}∞`;
}

/** Put thin spaces between thousands and a true minus in front of decimal or exponent text. */
function typeset(text: string): string {
  const [mantissa = '', exponent] = text.split('e');
  const [integer = '', fraction] = mantissa.replace('-', '').split('.');
  // Most numbers have no thousands, and pictures write tens of thousands of them.
  const grouped =
    integer.length <= 3
      ? integer
      : Array.from(integer, (digit, at) =>
          at > 0 && (integer.length - at) % 3 === 0 ? THIN_SPACE + digit : digit
        ).join('');
  const tail = exponent === undefined ? '' : `e${exponent.replace('+', '').replace('-', MINUS)}`;
  return `${text.startsWith('-') ? MINUS : ''}${grouped}${fraction ? `.${fraction}` : ''}${tail}`;
}

/** Drop the zeros that end a fraction. */
function trimmed(text: string): string {
  const [mantissa = '', ...exponent] = text.split('e');
  let end = mantissa.length;
  while (mantissa.includes('.') && '0.'.includes(mantissa[end - 1] ?? ' ')) {
    end -= 1;
    if (mantissa[end] === '.') {
      break;
    }
  }
  return [mantissa.slice(0, end), ...exponent].join('e');
}

/**
 * Write a number for a tooltip or legend.
 *
 * Thin-space thousands, a true minus, scientific below 1e−5 and from 1e5 on, no trailing zeros.
 *
 * @param digits Significant digits that are kept, 4 unless told.
 */
export function formatNumber(value: number, digits = 4): string {
  const special = nonFinite(value);
  if (special !== null) {
    return special;
  }
  if (value === 0) {
    return '0';
  }
  const rounded = Number(value.toPrecision(digits));
  const size = Math.abs(rounded);
  if (size < 1e-5 || size >= 1e5) {
    return typeset(trimmed(value.toExponential(digits - 1)));
  }
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return typeset(trimmed(rounded.toFixed(Math.min(decimals, 100))));
}

/**
 * Write every digit that tells a number from its neighbours.
 *
 * @param single Whether the number was a float32: then the shortest decimal that reads back as the same
 * float32.
 */
export function formatFull(value: number, single = false): string {
  const special = nonFinite(value);
  if (special !== null) {
    return special;
  }
  let shortest = value;
  if (single) {
    for (let digits = 1; digits <= 9; digits++) {
      shortest = Number(value.toPrecision(digits));
      if (Math.fround(shortest) === Math.fround(value)) {
        break;
      }
    }
  }
  return typeset(String(shortest));
}

/** Write a whole number in full, such as a step: `1 240` with a thin space. */
export function formatInteger(value: number): string {
  return nonFinite(value) ?? typeset(Math.round(value).toFixed(0));
}

const SI = ['', 'k', 'M', 'G', 'T', 'P'] as const;

/** Write a count with an SI suffix: `8.7k`, `12.4M`; below 1000 as it is. */
export function formatCount(value: number): string {
  const special = nonFinite(value);
  if (special !== null) {
    return special;
  }
  let [scaled, power] = [value, 0];
  while (Math.abs(Number(scaled.toPrecision(3))) >= 1000 && power < SI.length - 1) {
    scaled /= 1000;
    power += 1;
  }
  return `${formatNumber(scaled, 3)}${SI[power] ?? ''}`;
}

/** Write a size in bytes, powers of 1000: `42.1 kB`. */
export function formatBytes(value: number): string {
  const text = formatCount(value);
  const suffix = /[kMGTP]$/.exec(text)?.[0] ?? '';
  return `${suffix ? text.slice(0, -1) : text} ${suffix}B`;
}

export function timeWords(ms: number): string {
  const size = Math.abs(ms);
  if (size >= 1000) {
    return `${formatNumber(ms / 1000, 4)} s`;
  }
  return size >= 1 || ms === 0 ? `${formatNumber(ms, 4)} ms` : `${formatNumber(ms * 1000, 4)} µs`;
}
