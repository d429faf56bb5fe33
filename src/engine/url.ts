const ABSOLUTE = /^[a-z][a-z0-9+.-]*:/i;

/** What of `URL` the checker of JSON Schemas uses: an absolute address, or a reference beside one, and its fragment. Nothing is loaded by it. */
export class Address {
  readonly href: string;

  constructor(reference: string, base = '') {
    const [page = ''] = base.split('#');
    if (ABSOLUTE.test(reference)) {
      this.href = reference;
    } else if (!ABSOLUTE.test(base)) {
      throw new TypeError(`${JSON.stringify(reference)} is no address.`);
    } else if (reference === '' || reference.startsWith('#')) {
      this.href = page + reference;
    } else {
      const [origin = page] = /^[a-z][a-z0-9+.-]*:(\/\/[^/]*)?/i.exec(page) ?? [];
      this.href = reference.startsWith('/') ? origin + reference : page.replace(/[^/]*$/, '') + reference;
    }
  }

  get hash(): string {
    const at = this.href.indexOf('#');
    return at < 0 || at === this.href.length - 1 ? '' : this.href.slice(at);
  }

  set hash(fragment: string) {
    const [page = ''] = this.href.split('#');
    const text = fragment.replace(/^#/, '');
    (this as { href: string }).href = text === '' ? page : `${page}#${text}`;
  }

  toString(): string {
    return this.href;
  }
}
