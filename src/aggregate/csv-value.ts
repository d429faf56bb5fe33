/** What spreadsheets take for a formula, also behind quotes and white space. */
const FORMULA = /^[\s"']*[=+\-@＝＋－＠]|^[\t\r]/;
const NUMBER = /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i;

/**
 * A value as cells of comma-separated values have it, before quoting: all digits of numbers, as pandas and
 * spreadsheets read them; a text that a spreadsheet would run as a formula has an apostrophe in front. A
 * number stays a number, also one that is written as text.
 */
export function csvValue(value: unknown): string {
  if (typeof value === 'number') {
    return Number.isNaN(value) ? 'nan' : Number.isFinite(value) ? String(value) : value > 0 ? 'inf' : '-inf';
  }
  const text = value === null || value === undefined ? '' : String(value);
  return FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
}

/** A whole cell: quoted where the text could be read as more than one. */
export function csvCell(value: unknown): string {
  const text = csvValue(value);
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
