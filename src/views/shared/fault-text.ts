import { version } from '../../version';

const MOST = 8000;

/**
 * What went wrong as text for a report of a fault: what failed, the error, where it was thrown. Values of the
 * run are in it only as far as the error's own sentence names them. `where` adds more, such as React's stack
 * of components.
 */
export function faultText(what: string, error: unknown, where = ''): string {
  const stack = error instanceof Error ? (error.stack ?? `${error.name}: ${error.message}`) : String(error);
  return `Megalens ${version}: ${what}\n${stack}\n${where}`.trim().slice(0, MOST);
}

export function faultSentence(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, 500);
}
