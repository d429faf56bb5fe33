import type { Page } from '@playwright/test';

/**
 * Every rule of axe-core that a page breaks, a line for each element: which rule, where, why.
 *
 * @param selectors What to look at; the whole page unless told.
 * @param rules Which rules; all unless told.
 */
export function violations(
  page: Page,
  selectors?: readonly string[],
  rules?: readonly string[]
): Promise<string[]>;
