import type { Phase } from './messages.generated';
import { own } from './records';
import { ProtocolError } from './protocol-error';
import { schemaCheck } from './schema-check';
import type { IViewDescriptor, IViewInfo } from './view-descriptor';
import { CORE_VIEWS, VIEWS } from './view-table.generated';
import type { ViewOptions } from './views.generated';

export type ViewName = ViewOptions['view'];

/** Views of this package whose code is here: those of the core, and those that instruments brought. */
const here = new Set<string>(CORE_VIEWS);
const others = new Map<string, IViewDescriptor>();
const NAME = /^[a-z][a-z0-9_]*$/;

/** Every view whose code is here, our own first, in the order in which they are offered. */
export function viewInfos(): readonly IViewInfo[] {
  return [...Object.values(VIEWS).filter(({ name }) => here.has(name)), ...others.values()];
}

/**
 * What is known of a view, also of one of ours whose code is not here; undefined where nobody brought one of
 * that name.
 */
export function viewInfo(name: string): IViewInfo | undefined {
  return Object.hasOwn(VIEWS, name) ? VIEWS[name as keyof typeof VIEWS] : others.get(name);
}

/**
 * Whether the code of a view of this package is here: an instrument that was left out takes its views with
 * it.
 */
export function isHere(name: string): boolean {
  return here.has(name);
}

export function bringViews(names: readonly string[]): void {
  names.forEach(name => here.add(name));
}

export function otherView(name: string): IViewDescriptor | undefined {
  return others.get(name);
}

export function viewTitle(
  options: { readonly view: string },
  translate: (text: string) => string = text => text,
  flagTitle: (flag: string) => string = flag => flag
): string {
  const title = translate(viewInfo(options.view)?.title ?? options.view);
  return 'flag' in options && typeof options.flag === 'string'
    ? `${title} · ${flagTitle(options.flag)}`
    : title;
}

/**
 * The views of a report that nobody chose: one of each kind that has something to show, and for each flag
 * those that show one flag.
 */
export function reportViews(
  has: (stream: string) => boolean,
  flags: readonly string[],
  phase: Phase = 'train'
): ViewOptions[] {
  const chosen = viewInfos()
    .filter(({ report, needs }) => report !== undefined && needs.streams.every(has))
    .sort((a, b) => (a.report?.order ?? 0) - (b.report?.order ?? 0));
  const made = ({ name, report, phases }: IViewInfo, flag: object = {}): ViewOptions =>
    ({ view: name, ...flag, ...report?.options, ...own(phases ?? {}, phase) }) as ViewOptions;
  return [
    ...chosen.filter(({ needs }) => !needs.flag).map(info => made(info)),
    ...flags.flatMap(flag => chosen.filter(({ needs }) => needs.flag).map(info => made(info, { flag })))
  ];
}

/**
 * Make a view of another package known.
 *
 * @returns Takes it back; safe twice.
 * @throws {ProtocolError} When the name is no name, or is taken, or the schema of its options has a word that
 * is not understood.
 */
export function addView(descriptor: IViewDescriptor): () => void {
  const { name } = descriptor;
  if (!NAME.test(name)) {
    throw new ProtocolError(
      'bad-parameter',
      `The name of a view must be small letters, digits and _, got ${JSON.stringify(name).slice(0, 100)}.`,
      { field: 'name' }
    );
  }
  if (viewInfo(name) !== undefined) {
    throw new ProtocolError('bad-parameter', `There is a view ${name} already. Choose another name.`, {
      field: 'name'
    });
  }
  schemaCheck(descriptor.options);
  others.set(name, descriptor);
  return () => {
    if (others.get(name) === descriptor) {
      others.delete(name);
    }
  };
}
