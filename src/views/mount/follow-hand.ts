import type { Zoom, Chart, IPlace } from '../../charts';
import type { IMark, IMoved } from '../shared/content';
import type { Cursor } from './cursor';
import { copyText } from './dom';
import type { Linked } from './linked';
import type { Shell } from './shell';

/**
 * What a key does to the zoom; undefined when it means something else.
 *
 * @param at - Where the cursor is on the x axis: it comes closer about it, while it is in sight.
 */
function zoomKey(key: string, zoom: Zoom | null, at: number | null): (() => void) | undefined {
  const { x0 = 0, x1 = 1 } = zoom?.domain ?? {};
  const part = at === null ? NaN : (at - x0) / (x1 - x0);
  const about = part >= 0 && part <= 1 ? part : 0.5;
  switch (key) {
    case '+':
    case '=':
    case 'w':
      return () => zoom?.by(0.8, about);
    case '-':
    case 's':
      return () => zoom?.by(1.25, about);
    case 'a':
      return () => zoom?.pan(-0.1, 0);
    case 'd':
      return () => zoom?.pan(0.1, 0);
    case '0':
      return () => zoom?.reset();
    default:
      return undefined;
  }
}

/** What pointer and keys act on. */
export interface IHandled {
  /** Null while nothing is drawn. */
  chart(): Chart | null;
  zoom(): Zoom | null;
  isDrawn(): boolean;
  probe(place: IPlace): IMark | null;
  /** Answer a key; null when it means nothing here. */
  move(key: string): IMoved | null;
  clicked(mark: IMark): void;
  /** Put marks where their data are drawn now. */
  place(): void;
  fail(reason: unknown): void;
}

/** A pointer that moved less than this between down and up has clicked. */
const CLICK_PIXELS = 4;

/** Let pointer and keys move the cursor of a view, and tell the run's other views. Ends with the stage. */
export function followHand(view: IHandled, shell: Shell, cursor: Cursor, linked: Linked): void {
  const { stage } = shell;
  stage.addEventListener('pointermove', event => {
    const place = view.zoom()?.isDragging ? null : view.chart()?.locate(event);
    cursor.mark = place ? view.probe(place) : null;
    linked.tell(cursor.mark);
    view.place();
  });
  // A drag pans or chooses steps; only a click that stayed where it began means a place.
  let from: readonly [number, number] = [0, 0];
  stage.addEventListener('pointerdown', event => (from = [event.clientX, event.clientY]), true);
  stage.addEventListener('click', event => {
    const place = view.chart()?.locate(event);
    const stayed = Math.hypot(event.clientX - from[0], event.clientY - from[1]) < CLICK_PIXELS;
    const mark = place && !event.shiftKey && stayed ? view.probe(place) : null;
    if (mark) {
      view.clicked(mark);
    }
  });
  stage.addEventListener('pointerleave', () => {
    cursor.clear();
    linked.tell(null);
  });
  stage.addEventListener('keydown', event => {
    const command = event.ctrlKey || event.metaKey;
    const copying = event.key === 'c' && command;
    if (event.target !== stage || event.altKey || (command && !copying)) {
      return;
    }
    const letGo = (): void => [cursor, linked].forEach(each => each.clear());
    const pin = (): void => shell.say(linked.pin(cursor.mark) ?? '');
    const zoom =
      event.key === 'Escape'
        ? letGo
        : event.key.toLowerCase() === 'p'
          ? pin
          : zoomKey(event.key, view.zoom(), cursor.mark && (cursor.mark.x[0] + cursor.mark.x[1]) / 2);
    const moved = zoom === undefined && view.isDrawn() ? view.move(copying ? 'copy' : event.key) : null;
    if (zoom === undefined && moved === null) {
      return;
    }
    zoom?.();
    if (moved) {
      const selection = event.shiftKey ? linked.extend(cursor.mark, moved.mark) : linked.settle();
      cursor.mark = moved.mark;
      linked.tell(moved.mark);
      shell.say(selection ? `${moved.said}. ${selection}` : moved.said);
      void moved.later?.then(text => cursor.mark === moved.mark && shell.say(text));
      if (moved.copy !== undefined) {
        void copyText(moved.copy).catch(reason => view.fail(reason));
      }
      void view
        .chart()
        ?.settled()
        .then(() => view.place());
    }
    event.preventDefault();
    event.stopPropagation();
  });
}
