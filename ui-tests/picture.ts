import { join, resolve } from 'node:path';
import type { Locator, Page, PageScreenshotOptions } from '@playwright/test';

export const SHOTS = resolve(__dirname, 'screenshots');
/**
 * Whether pictures are taken: no test compares them, a person looks at them who asks with `MEGALENS_PICTURES=1`.
 *
 * To take one costs about as much as to draw what is on it, and for a dark one JupyterLab loads its other theme and all draws anew.
 */
export const PICTURES = (process.env.MEGALENS_PICTURES ?? '') !== '';
/** Themes in which a test shows what is placed alike in all of them: another one where a person looks. */
export const SHOWN = PICTURES ? (['light', 'dark'] as const) : (['light'] as const);

/** Take a picture of a page, or of a part, where pictures are wanted. */
export async function picture(
  of: Page | Locator,
  name: string,
  options: Pick<PageScreenshotOptions, 'fullPage'> = {}
): Promise<void> {
  if (PICTURES) {
    await of.screenshot({ ...options, path: join(SHOTS, `${name}.png`) });
  }
}
