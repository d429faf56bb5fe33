import { COLORS, readTheme } from '../../charts';
import type { ViewOptions } from '../../protocol/views.generated';
import type { IRunSource } from '../../store/source';
import type { Control } from '../shared/control';
import {
  type IComposition,
  type ICompositionEnvironment,
  type IFoldLine,
  isPart,
  type IViewPart,
  ViewError
} from '../shared/definition';
import type { IViewHost } from '../view';
import { element, watchSeen, writeText } from './dom';
import { Menu, viewMenu } from './menu';
import { Mounted } from './mounted';
import { MountedView } from './mounted-view';
import { type IRoom, leftIn } from './picture';
import { renderState } from './drawing';
import { Toolbar } from './toolbar';

const GAP = 16;

/** Put SVG pictures below one another. */
function stackSVG(pictures: readonly string[]): string {
  if (pictures.length === 1) {
    return pictures[0] ?? '';
  }
  let [width, height] = [0, 0];
  const placed = pictures.map((text, index) => {
    const size = (name: string): number =>
      parseFloat(new RegExp(`^[^>]*\\b${name}="([\\d.]+)"`).exec(text)?.[1] ?? '0');
    const top = height;
    width = Math.max(width, size('width'));
    height += size('height') + GAP;
    // Each picture counts its clips from 0; in one document names must differ.
    return text.replace(/^[^<]*<svg/, `<svg y="${top}"`).replace(/(\bid="|url\(#|href="#)/g, `$1p${index}-`);
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height - GAP}">${placed.join('')}</svg>`;
}

/** Put PNG pictures, as data URLs, below one another on white. */
async function stackPNG(pictures: readonly string[]): Promise<string> {
  if (pictures.length === 1) {
    return pictures[0] ?? '';
  }
  const images = await Promise.all(
    pictures.map(async url => {
      const image = new Image();
      image.src = url;
      await image.decode();
      return image;
    })
  );
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(...images.map(image => image.naturalWidth));
  canvas.height = images.reduce((sum, image) => sum + image.naturalHeight + GAP, -GAP);
  const context = canvas.getContext('2d');
  if (!context) {
    throw new ViewError('This browser draws no pictures off the page. Save it as SVG.');
  }
  context.fillStyle = COLORS.ink.light.ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  let top = 0;
  for (const image of images) {
    context.drawImage(image, 0, top);
    top += image.naturalHeight + GAP;
  }
  return canvas.toDataURL('image/png');
}

/** The element of a part with a heading over it. */
function headed(
  { className }: IViewPart,
  { text, hint, open }: NonNullable<IViewPart['heading']>
): HTMLElement {
  const title = element('h2', { class: 'jp-MegalensTile-heading' });
  if (open) {
    const button = element('button', { type: 'button', title: hint ?? '' }, text);
    button.addEventListener('click', open);
    title.append(button);
  } else {
    title.append(text);
  }
  return element('section', { class: className, 'aria-label': text }, title);
}

/** What stands in the place of one entry of the layout. */
interface IMounted {
  part: IViewPart | IFoldLine;
  readonly node: HTMLElement;
  /** Null of a line that folds, and of a part that did not come into sight yet. */
  view: MountedView<ViewOptions> | null;
  /** Stops watching whether it is in sight. */
  unwatch(): void;
}

function writeFold(node: HTMLElement, { text, isFolded }: IFoldLine): void {
  const button = node.querySelector('button');
  if (button) {
    writeText(button, `${isFolded ? '▸' : '▾'} ${text}`);
    button.setAttribute('aria-expanded', String(!isFolded));
  }
}

/**
 * The part of a composition that touches the page: a toolbar, a second line that folds, and its parts below
 * one another.
 */
export class MountedComposition<O extends ViewOptions> extends Mounted<O> {
  constructor(
    node: HTMLElement,
    private readonly _source: IRunSource,
    options: Required<O>,
    host: IViewHost,
    compose: (source: IRunSource, env: ICompositionEnvironment<O>) => IComposition
  ) {
    super(node, options, host);
    const { t } = this;
    const menu = new Menu(
      t('More actions'),
      () => {
        const zoomed = this._parts.find(({ part }) => part.key === this._composition.zoomed);
        const actions = zoomed?.view?.menu ?? { exportReport: host.exportReport };
        const arquero = this._composition.arquero?.bind(this._composition);
        return viewMenu(this, `${_source.name}-${options.view}`, this.plain, { ...actions, arquero }, t);
      },
      reason => this._fail(reason)
    );
    this._toolbar = new Toolbar(t('View settings'), menu.node, t);
    this._composition = compose(_source, this._environment());
    this._folded = new Toolbar(this._composition.controls(() => []).folded?.label ?? '', null, t);
    this._folded.node.hidden = true;
    this._root = element(
      'div',
      { class: this._composition.className },
      this._toolbar.node,
      this._folded.node,
      this._failure
    );
    node.append(this._root);
    this._layOut();
    void this._prepare();
  }

  protected async chosen(): Promise<void> {
    if (this._composition.prepare) {
      await this._prepare();
    } else {
      this._layOut();
    }
  }

  async settled(): Promise<void> {
    await this._preparing;
    await Promise.all(this._parts.map(({ view }) => view?.settled()));
  }

  summary(): string {
    const shown = this._parts.filter(({ node }) => !node.hidden);
    return [...new Set(shown.map(({ view }) => view?.summary() ?? ''))].filter(Boolean).join(' ');
  }

  async toSVG(): Promise<string> {
    const pictured = await this._pictured();
    return stackSVG(await Promise.all(pictured.map(view => view.toSVG())));
  }

  async toPNG(): Promise<string> {
    const pictured = await this._pictured();
    return stackPNG(await Promise.all(pictured.map(view => view.toPNG())));
  }

  get parts(): ReadonlyMap<string, MountedView<ViewOptions>> {
    return new Map(this._parts.flatMap(({ part, view }) => (view ? [[part.key, view] as const] : [])));
  }

  protected end(): void {
    this._unmount(() => true);
    this._composition.dispose?.();
    this._toolbar.dispose();
    this._root.remove();
  }

  private _environment(): ICompositionEnvironment<O> {
    const read = (): Readonly<Required<O>> => this.options;
    const { host, node } = this;
    return {
      t: this.t,
      isStill: false,
      get isDark() {
        return readTheme(node).dark;
      },
      runs: this.host.runs ?? null,
      openView: this.host.openView ?? null,
      frame: host.frame ?? null,
      get options() {
        return read();
      },
      choose: options => this._choose(options),
      relayout: () => void this._prepare(),
      rearrange: () => this._arrange(),
      refresh: (now = false) => this._parts.forEach(({ view }) => view?.refresh(now))
    };
  }

  /** Learn the layout and lay out; calls of one moment end with the last one's. */
  private _prepare(): Promise<void> {
    this._preparing = (async () => {
      await this._composition.prepare?.();
      if (!this.isDisposed) {
        this._layOut();
      }
    })();
    return this._preparing;
  }

  /**
   * Give the parts what the layout says now; those whose key stays are kept as they are on the page, with
   * what is typed into them.
   */
  private _layOut(): void {
    const layout = this._composition.layout();
    const known = new Map(this._parts.map(each => [each.part.key, each]));
    this._unmount(({ part }) => !layout.some(({ key }) => key === part.key));
    let before: Element = this._failure;
    this._parts = layout.map(part => {
      const existing = known.get(part.key);
      const mounted = existing ?? (isPart(part) ? this._place(part) : this._line(part));
      mounted.part = part;
      if (isPart(part)) {
        // What a view was told already it does not do again.
        void mounted.view?.update(part.options);
      } else {
        writeFold(mounted.node, part);
      }
      if (before.nextElementSibling !== mounted.node) {
        before.after(mounted.node);
      }
      before = mounted.node;
      return mounted;
    });
  }

  private _line(part: IFoldLine): IMounted {
    const button = element('button', { type: 'button' });
    const node = element('h2', { class: 'jp-MegalensFoldLine' }, button);
    const mounted: IMounted = { part, node, view: null, unwatch: () => undefined };
    button.addEventListener('click', () => 'fold' in mounted.part && mounted.part.fold());
    return mounted;
  }

  /** Make a part, or the place of one that is made once it comes into sight. */
  private _place(part: IViewPart): IMounted {
    const node = part.heading ? headed(part, part.heading) : element('div', { class: part.className });
    // On the page before it draws: it takes its width from there.
    this._root.append(node);
    const mounted: IMounted = { part, node, view: null, unwatch: () => undefined };
    const make = (): void => {
      mounted.view ??= this._mount(mounted.part as IViewPart, node);
      mounted.unwatch();
    };
    if (part.isLazy && typeof IntersectionObserver === 'function') {
      mounted.unwatch = watchSeen(node, isSeen => isSeen && make()).end;
    } else {
      make();
    }
    return mounted;
  }

  private _mount(part: IViewPart, node: HTMLElement): MountedView<ViewOptions> {
    const { frame, ...host } = this.host;
    return new MountedView<ViewOptions>(
      node,
      this._source,
      part.options,
      { ...host, frame: this._composition.isLaidOut ? undefined : frame },
      part.create.bind(part),
      {
        ...(frame && { room: () => this._room(frame) }),
        every: part.every ?? 0,
        choose: options => this._choose(this._composition.heard(part.key, options) as Partial<O>),
        toolbar: controls => this._show(part.key, controls)
      }
    );
  }

  private _unmount(isGone: (mounted: IMounted) => boolean): void {
    this._parts.filter(isGone).forEach(({ part, view, node, unwatch }) => {
      unwatch();
      view?.dispose();
      node.remove();
      this._controls.delete(part.key);
    });
    this._parts = this._parts.filter(mounted => !isGone(mounted));
  }

  /** A part was drawn: show its controls, and the parts that have something to show now. */
  private _show(key: string, controls: readonly Control[]): void {
    const drawn = (of: string): boolean =>
      this._parts.find(({ part }) => part.key === of)?.view?.isDrawn ?? false;
    this._controls.set(key, controls);
    this._composition.drawn?.(key, drawn(key));
    this._parts.forEach(({ part, node }) => {
      node.hidden = isPart(part) && !this._composition.shows(part.key, drawn);
    });
    this._arrange();
  }

  /** What the frame leaves for the plots of all parts that are shown. */
  private _room(frame: Element): IRoom {
    const shown = this._parts.filter(({ node }) => !node.hidden);
    const pictures = shown.flatMap(({ view }) => (view ? [view.picture] : []));
    return {
      left: leftIn(frame, this._root, pictures),
      all: pictures.reduce((sum, { usual }) => sum + usual, 0)
    };
  }

  private _arrange(): void {
    if (this.isDisposed) {
      return;
    }
    const { main, folded } = this._composition.controls(key => this._controls.get(key) ?? []);
    this._toolbar.update(main);
    this._folded.node.hidden = !folded?.controls;
    this._folded.update(folded?.controls ?? []);
    this._parts.forEach(({ view }) => view?.refit());
  }

  /**
   * The parts that an exported picture is made of: those that are none, or have nothing to show, are left
   * out.
   */
  private async _pictured(): Promise<MountedView<ViewOptions>[]> {
    await this.settled();
    const pictured = this._parts.flatMap(({ part, node, view }) =>
      view && isPart(part) && !part.unpictured && !node.hidden ? [view] : []
    );
    if (pictured.length === 0) {
      throw new ViewError(this._composition.unpictured);
    }
    return pictured;
  }

  private _choose(options: Partial<O>): void {
    this.update(options).catch(reason => this._fail(reason));
  }

  private _fail(reason: unknown): void {
    const dismiss = {
      label: this.t('Dismiss'),
      run: () => renderState(this._failure, null, () => undefined)
    };
    const sentence = reason instanceof Error ? reason.message : String(reason);
    renderState(this._failure, { kind: 'error', sentence, action: dismiss }, () => undefined);
  }

  private _parts: readonly IMounted[] = [];
  private _preparing: Promise<void> = Promise.resolve();
  private readonly _composition: IComposition;
  private readonly _root: HTMLElement;
  private readonly _toolbar: Toolbar;
  private readonly _folded: Toolbar;
  private readonly _controls = new Map<string, readonly Control[]>();
  private readonly _failure = element('div', { class: 'jp-MegalensBanner', hidden: '' });
}
