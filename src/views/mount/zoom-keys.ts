import type { Zoom } from '../../charts';

/** What a key does to the zoom; undefined when it means something else. */
export function zoomKey(key: string, zoom: Zoom | null): (() => void) | undefined {
  switch (key) {
    case '+':
    case '=':
      return () => zoom?.by(0.8);
    case '-':
      return () => zoom?.by(1.25);
    case '0':
      return () => zoom?.reset();
    default:
      return undefined;
  }
}
