/** A folder of an absolute path: POSIX, Windows, home, `file:`. */
const FOLDERS =
  /(?:file:\/{2,3}|[A-Za-z]:(?=[\\/])|~(?=\/))?(?:(?<![\w.:])[\\/]|(?<=:)[\\/])(?:[^\\/\s'"<>|]+[\\/])+/g;

/** Return a text without the folders of any absolute path: a file that is passed on says nothing of the machine that it came from. */
export function clean(text: string): string {
  return text.replace(FOLDERS, '…/');
}

/** Return a JSON value with every text in it cleaned. */
export function cleaned<T>(value: T): T {
  return JSON.parse(JSON.stringify(value), (_, each: unknown) =>
    typeof each === 'string' ? clean(each) : each
  ) as T;
}
