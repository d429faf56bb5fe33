/** What a folder is called: no space and no quote in it. */
const NAME = String.raw`[^\\/\s'"<>|]+`;
/** The same without what patterns are written with. */
const PLAIN = String.raw`[^\\/\s'"<>|()[\]{}*+?^$]+`;
/** A link to something that is no file: up to its questions, in which there may be a path. */
const LINK = String.raw`\b(?!file:)[a-z][\w+.-]{1,30}:\/\/(?=[^/\s])[^\s'"<>|?#]*`;
/** A link to a file: with the machine's name, or without any. */
const FILE_LINK = String.raw`(?:\bfile:\/\/|\b[a-z][\w+.-]{1,30}:\/\/(?=\/))(?:[\\/]*${NAME}[\\/]+)+`;
/**
 * Of a Windows path the drive or the machine; `(?i:\d` of a pattern is none. Python's texts write each
 * separator twice.
 */
const WINDOWS = String.raw`(?:(?<![\w?-])[a-z]:[\\/]+|(?<![\\\w)\]}])(?:\\{2}|\\{4})(?=[\w.-]{2,}\\{1,2}[\w.$-]{2}))(?:${NAME}[\\/]+)+`;
/** Of any other path the root or a home; not within a word, a relative path or a pattern. */
const ROOTED = String.raw`(?<![\w.)\]}\\/…])~?\/+${PLAIN}\/+(?:${NAME}\/+)*`;

/**
 * Every absolute path, and every link, which is the first group. For the test that no expression goes back.
 */
export const PATHS = new RegExp(`(${LINK})|${FILE_LINK}|${WINDOWS}|${ROOTED}`, 'gi');

/**
 * Return a text without the folders of any absolute path in it: a picture that is passed on says nothing of
 * the machine it came from. Links, patterns, and names with dots or slashes in them stay as they are.
 */
export function cleanPaths(text: string): string {
  return text.replace(PATHS, (_, link: string | undefined) => link ?? '…/');
}
