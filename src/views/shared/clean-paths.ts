/** The folders of an absolute path: after a scheme, a drive or a home if there is one, and not within a word or a number. */
const FOLDERS =
  /(?:file:\/{2,3}|[A-Za-z]:(?=[\\/])|~(?=\/))?(?:(?<![\w.:])[\\/]|(?<=:)[\\/])(?:[^\\/\s'"<>|]+[\\/])+/g;

/** Return a text without the folders of any absolute path in it: a picture that is passed on says nothing of the machine it came from. */
export function cleanPaths(text: string): string {
  return text.replace(FOLDERS, '…/');
}
