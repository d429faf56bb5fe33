import CONTRACT from '#protocol/streams.json';
import type { DeclaredPolicy, Hello } from './messages.generated';
import type { FieldType, StreamName } from './streams.generated';

export interface IStreamField {
  readonly name: string;
  readonly type: FieldType;
  readonly doc?: string;
  readonly absent?: string;
}

/** One stream: what a row is, its columns in order, and how every room treats it. */
export interface IStreamInfo {
  readonly title: string;
  readonly doc?: string;
  readonly instrument?: string;
  readonly policy: Readonly<DeclaredPolicy>;
  readonly fields: readonly IStreamField[];
}

export const STREAMS: Readonly<Record<StreamName, IStreamInfo>> = CONTRACT.streams;

export type StreamMap = ReadonlyMap<string, IStreamInfo>;

const NAME = /^[a-z][a-z0-9_]{0,23}$/;
const MOST = 64;

const TYPES: ReadonlySet<string> = new Set(
  Object.values(STREAMS).flatMap(({ fields }) => fields.map(field => field.type))
);

const OWN = Object.entries(STREAMS);

/**
 * The streams of a run that this side can read: those of this version, and those that the hub or the
 * recording declares.
 *
 * A declaration that cannot be read, such as one with a column of a type of a later version, is left out: its
 * frames are skipped and counted, and everything else goes on.
 */
export function readableStreams(declared: Hello['streams']): StreamMap {
  const streams = new Map<string, IStreamInfo>(OWN);
  for (const [name, { fields, ...info }] of Object.entries(declared ?? {})) {
    const known = fields.filter(isReadable);
    const first = known[0];
    const names = new Set(known.map(field => field.name));
    const { identity = [], newer = 'step' } = info.policy;
    if (
      !streams.has(name) &&
      NAME.test(name) &&
      names.size === fields.length &&
      first?.name === 'step' &&
      first.type === 'int64' &&
      [...identity, newer].every(column => names.has(column)) &&
      streams.size < MOST
    ) {
      streams.set(name, { ...info, fields: known });
    }
  }
  return streams;
}

export const OWN_STREAMS = readableStreams(undefined);

function isReadable<T extends { readonly type: string }>(
  field: T
): field is T & { type: FieldType } & IStreamField {
  return TYPES.has(field.type);
}

/** Bytes of a stream's rows that a page keeps. */
export const pageBytes = ({ policy }: IStreamInfo): number => policy.page_bytes ?? 32 << 20;
