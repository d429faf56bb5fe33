import { ProtocolError, fullViewOptions, isWhole, keptViewOptions, type FullViewOptions } from '../protocol';

/** MIME type of a view in a notebook: which run and which options, and nothing else is needed to draw it. */
export const VIEW_MIME = 'application/vnd.megalens.view+json';

/** Most letters of an id. */
const MOST = 500;

/** Newest form of the JSON that this side reads. */
const FORMAT = 1;

export interface IRunReference {
  readonly id: string;
  readonly name: string;
  /** Run folder relative to the notebook, or null. */
  readonly folder: string | null;
  /** Raw-moment files, which the server knows once somebody opens them; absent for a run. */
  readonly kind?: 'statistics';
}

export interface IViewJson {
  readonly format: 1;
  readonly run: IRunReference;
  readonly options: FullViewOptions;
  /** Names of saved options that could not be read and have their defaults. */
  readonly dropped: readonly string[];
  /** The kernel's widget that shows the same view, while there is one. */
  readonly modelId: string | null;
}

const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

export function readRunReference(value: unknown): IRunReference {
  const fields: Record<string, unknown> = typeof value === 'object' && value !== null ? { ...value } : {};
  const id = text(fields['id']);
  if (id === null || id.length > MOST || !isWhole(id)) {
    throw new ProtocolError('bad-message', 'This view does not say which run it shows. Run the cell again.', {
      field: 'run.id'
    });
  }
  return {
    id,
    name: text(fields['name']) ?? id,
    folder: text(fields['folder']),
    ...(fields['kind'] === 'statistics' ? { kind: 'statistics' } : {})
  };
}

/**
 * Read what a cell's output holds, with the defaults of all options that cannot be read.
 * @throws ProtocolError When nothing can be drawn of it.
 */
export function readKeptJson(value: unknown): IViewJson {
  const fields =
    typeof value === 'object' && value !== null && 'options' in value ? value : { options: null };
  const { options, dropped } = keptViewOptions(fields.options);
  return { ...readViewJson({ ...fields, options }), dropped };
}

/**
 * Read what a cell's output holds.
 * @throws ProtocolError When it is from a newer version, or is no view.
 */
export function readViewJson(value: unknown): IViewJson {
  const fields: Record<string, unknown> = typeof value === 'object' && value !== null ? { ...value } : {};
  if (fields['format'] !== FORMAT) {
    throw new ProtocolError(
      'version-mismatch',
      'This view was saved by another version of Megalens. Update Megalens, or run the cell again.',
      { field: 'format', expected: String(FORMAT), got: String(fields['format']).slice(0, 50) }
    );
  }
  return {
    format: FORMAT,
    run: readRunReference(fields['run']),
    options: fullViewOptions(fields['options']),
    dropped: [],
    modelId: text(fields['model_id'])
  };
}
